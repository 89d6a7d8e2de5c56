#include "config/rules/check_data.h"

#include <string>
#include <vector>

namespace tessera {
namespace {

const char* word(DataKind kind) {
  return kind == DataKind::kTokens ? "tokens" : kind == DataKind::kImages ? "images" : "pairs";
}

// Reports keys that belong to another data.kind, since nobody would read them, and keys that this
// one needs and that are missing.
void check_keys(const DataSection& d, RuleReport& report) {
  const struct {
    const char* key;
    DataKind kind;
    bool given;
  } keys[] = {{"seq_len", DataKind::kTokens, d.seq_len != 0},
              {"mean", DataKind::kImages, !d.mean.empty()},
              {"std", DataKind::kImages, !d.std.empty()},
              {"flip", DataKind::kImages, d.flip},
              {"train_target", DataKind::kPairs, !d.train_target.empty()},
              {"valid_target", DataKind::kPairs, !d.valid_target.empty()},
              {"source_len", DataKind::kPairs, d.source_len != 0},
              {"target_len", DataKind::kPairs, d.target_len != 0},
              {"pad_id", DataKind::kPairs, d.pad_id.has_value()},
              {"bos_id", DataKind::kPairs, d.bos_id.has_value()},
              {"eos_id", DataKind::kPairs, d.eos_id.has_value()}};
  for (const auto& [key, kind, given] : keys) {
    const std::string name = key;
    if (given && kind != d.kind)
      report.broken({"data." + name, "data.kind"},
                    "data.{}: it is a key of data.kind {}, but data.kind is {}; remove it", key,
                    word(kind), word(d.kind));
    // The keys of images (lists and a flag) and valid_target may be left out.
    const bool required = kind != DataKind::kImages && name != "valid_target" && kind == d.kind;
    if (required && !given)
      report.broken({"data." + name, "data.kind"},
                    "data.{}: none; data.kind {} needs it; give it a value", key, word(d.kind));
  }
}

void check_pairs(const DataSection& d, const std::optional<ModelInput>& input, RuleReport& report) {
  const struct {
    const char* key;
    std::optional<int64_t> id;
  } ids[] = {{"pad_id", d.pad_id}, {"bos_id", d.bos_id}, {"eos_id", d.eos_id}};
  for (const auto& [key, id] : ids)
    if (input && id && *id >= input->vocab_size)
      report.broken({std::string("data.") + key, "model"},
                    "data.{}: {}; must be below model.vocab_size {}", key, *id, input->vocab_size);
  if (d.pad_id && d.bos_id && d.eos_id &&
      (d.pad_id == d.bos_id || d.pad_id == d.eos_id || d.bos_id == d.eos_id))
    report.broken({"data.pad_id", "data.bos_id", "data.eos_id"},
                  "data.pad_id, bos_id, eos_id: {}, {}, {}; they must be three different tokens",
                  *d.pad_id, *d.bos_id, *d.eos_id);
  const struct {
    const char* name;
    const std::vector<std::string>& source;
    const std::vector<std::string>& target;
  } sides[] = {{"train", d.train, d.train_target}, {"valid", d.valid, d.valid_target}};
  for (const auto& [name, source, target] : sides)
    if (source.size() != target.size())
      report.broken({fmt::format("data.{}_target", name), fmt::format("data.{}", name)},
                    "data.{0}_target: {1} prefixes; data.{0} has {2}, and each data set of sources "
                    "needs one of targets",
                    name, target.size(), source.size());
}

}  // namespace

void check_data(const Config& c, const std::optional<ModelInput>& input, RuleReport& report) {
  const DataSection& d = c.data;
  if (input && input->kind != d.kind) {
    report.broken({"data.kind", "model"},
                  "data.kind: {}; the model reads {}; set data.kind: {} or another model",
                  word(d.kind), word(input->kind), word(input->kind));
    return;  // the other keys belong to one or the other
  }
  if (d.train.empty())
    report.broken(
        {"data.train"}, "data.train: []; must name at least one {}",
        d.kind == DataKind::kImages ? "safetensors file of images" : "prefix of a .bin/.idx pair");
  check_keys(d, report);
  if (d.kind == DataKind::kPairs) check_pairs(d, input, report);
  if (d.kind == DataKind::kImages && input) {
    for (const auto* values : {&d.mean, &d.std})
      if (!values->empty() && static_cast<int64_t>(values->size()) != input->image_shape[0])
        report.broken({values == &d.mean ? "data.mean" : "data.std", "model"},
                      "data.{}: {} numbers; must be one for each of the {} channels of "
                      "model.num_channels",
                      values == &d.mean ? "mean" : "std", values->size(), input->image_shape[0]);
  }
  if (c.eval.every > 0 && d.valid.empty())
    report.broken({"eval.every", "data.valid"},
                  "eval.every: {}; validation needs data.valid; name {} there or set eval.every: 0",
                  c.eval.every, d.kind == DataKind::kImages ? "a file" : "a prefix");
}

}  // namespace tessera
