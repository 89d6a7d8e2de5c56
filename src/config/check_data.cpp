#include "config/check_data.h"

#include "base/error.h"

namespace tessera {
namespace {

const char* word(DataKind kind) {
  return kind == DataKind::kTokens ? "tokens" : kind == DataKind::kImages ? "images" : "pairs";
}

// Keys of another kind would not be looked at.
void check_keys(const DataSection& d) {
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
    if (given && kind != d.kind)
      fail_user("config", "data.{}: it is a key of data.kind {}, but data.kind is {}; remove it",
                key, word(kind), word(d.kind));
    // A list or flag may be left out.
    const std::string name = key;
    const bool required = kind != DataKind::kImages && name != "valid_target" && kind == d.kind;
    if (required && !given)
      fail_user("config", "data.{}: none; data.kind {} needs it; give it a value", key,
                word(d.kind));
  }
}

void check_pairs(const DataSection& d, int64_t vocab_size) {
  const struct {
    const char* key;
    int64_t id;
  } ids[] = {{"pad_id", *d.pad_id}, {"bos_id", *d.bos_id}, {"eos_id", *d.eos_id}};
  for (const auto& [key, id] : ids)
    if (id >= vocab_size)
      fail_user("config", "data.{}: {}; must be below model.vocab_size {}", key, id, vocab_size);
  if (d.pad_id == d.bos_id || d.pad_id == d.eos_id || d.bos_id == d.eos_id)
    fail_user("config",
              "data.pad_id, bos_id, eos_id: {}, {}, {}; they must be three different tokens",
              *d.pad_id, *d.bos_id, *d.eos_id);
  const struct {
    const char* name;
    const std::vector<std::string>& source;
    const std::vector<std::string>& target;
  } sides[] = {{"train", d.train, d.train_target}, {"valid", d.valid, d.valid_target}};
  for (const auto& [name, source, target] : sides)
    if (source.size() != target.size())
      fail_user("config",
                "data.{0}_target: {1} prefixes; data.{0} has {2}, and each data set of sources "
                "needs one of targets",
                name, target.size(), source.size());
}

}  // namespace

void check_data(const Config& c) {
  const DataSection& d = c.data;
  const ModelInput input = c.model->input();
  if (input.kind != d.kind)
    fail_user("config", "data.kind: {}; the model reads {}; set data.kind: {} or another model",
              word(d.kind), word(input.kind), word(input.kind));
  if (d.train.empty()) {
    fail_user(
        "config", "data.train: []; must name at least one {}",
        d.kind == DataKind::kImages ? "safetensors file of images" : "prefix of a .bin/.idx pair");
  }
  check_keys(d);
  if (d.kind == DataKind::kPairs) check_pairs(d, input.vocab_size);
  if (d.kind == DataKind::kImages) {
    for (const auto* values : {&d.mean, &d.std})
      if (!values->empty() && static_cast<int64_t>(values->size()) != input.image_shape[0])
        fail_user("config",
                  "data.{}: {} numbers; must be one for each of the {} channels of "
                  "model.num_channels",
                  values == &d.mean ? "mean" : "std", values->size(), input.image_shape[0]);
  }
  if (c.eval.every > 0 && d.valid.empty()) {
    fail_user("config",
              "eval.every: {}; validation needs data.valid; name {} there or set eval.every: 0",
              c.eval.every, d.kind == DataKind::kImages ? "a file" : "a prefix");
  }
}

}  // namespace tessera
