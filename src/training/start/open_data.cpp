#include "training/start/open_data.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text/error_text.h"
#include "data/image_source.h"
#include "data/indexed_dataset.h"
#include "data/pair_source.h"
#include "data/token_source.h"

namespace tessera {
namespace {

// Positions that are checked before the start; a larger data set's are checked as they are read.
constexpr int64_t kPositionsCheckedAtStart = int64_t{1} << 26;

// `targets`: for pairs alone, the prefixes of the target side.
std::unique_ptr<const SampleSource> make_source(const Config& config,
                                                const std::vector<std::string>& paths,
                                                const std::vector<std::string>& targets) {
  const DataSection& data = config.data;
  const ModelInput input = config.model->input();
  switch (data.kind) {
    case DataKind::kTokens:
      return std::make_unique<TokenSource>(paths, data.seq_len, input.vocab_size);
    case DataKind::kImages:
      return std::make_unique<ImageSource>(
          paths, ImageOptions{input.image_shape, input.num_labels, data.mean, data.std, data.flip,
                              config.run.seed});
    case DataKind::kPairs:
      return std::make_unique<PairSource>(
          paths, targets,
          PairOptions{data.source_len, data.target_len, data.pad_id.value(), data.bos_id.value(),
                      data.eos_id.value(), input.vocab_size});
  }
  fail("data", "sample kind {} is not known", static_cast<int>(data.kind));
}

// Adds a Sight for each data set of the key `name`. Fingerprints of pairs alternate: source,
// target.
void add_sights(const std::string& name, const std::vector<std::string>& paths,
                const std::vector<std::string>& targets, const SampleSource& source,
                std::vector<Sight>& sights) {
  const auto fingerprints = source.fingerprints();
  for (size_t i = 0; i < paths.size(); ++i) {
    if (targets.empty()) {
      sights.push_back({name, fingerprints.at(i), paths[i]});
    } else {
      sights.push_back({name, fingerprints.at(2 * i), paths[i]});
      sights.push_back({name + "_target", fingerprints.at(2 * i + 1), targets.at(i)});
    }
  }
}

// Opens one of several data sets by itself. Throws if it cannot be read or its format does not fit;
// it may be smaller than a global batch.
void open_one(const Config& config, const std::string& path) {
  if (config.data.kind == DataKind::kImages)
    make_source(config, {path}, {});
  else
    const IndexedDataset data(path);
}

}  // namespace

std::vector<Sight> sights_of(const Config& config, const Data& data) {
  std::vector<Sight> sights;
  add_sights("data.train", config.data.train, config.data.train_target, *data.train, sights);
  if (data.valid)
    add_sights("data.valid", config.data.valid, config.data.valid_target, *data.valid, sights);
  return sights;
}

Data open_data(const Config& config, bool check) {
  Data data;
  data.train = make_source(config, config.data.train, config.data.train_target);
  if (data.train->num_samples() < config.training.global_batch_size) {
    const bool tokens = config.data.kind == DataKind::kTokens;
    fail_user("data",
              "data.train holds {} samples{}, less than one global batch of {}; add data or lower "
              "training.global_batch_size{}",
              data.train->num_samples(),
              tokens ? fmt::format(" of {} tokens", config.data.seq_len) : "",
              config.training.global_batch_size, tokens ? " or data.seq_len" : "");
  }
  if (config.eval.every > 0)
    data.valid = make_source(config, config.data.valid, config.data.valid_target);
  if (check) {
    const int64_t samples = kPositionsCheckedAtStart / data.train->positions_per_sample();
    data.train->check_samples(samples);
    if (data.valid) data.valid->check_samples(samples);
  }
  return data;
}

void check_data_files(const Config& config, RuleReport& report) {
  const DataSection& d = config.data;
  const bool validates = config.eval.every > 0;
  const struct {
    const char* key;
    const std::vector<std::string>& paths;
    bool read;
  } sets[] = {{"data.train", d.train, true},
              {"data.train_target", d.train_target, true},
              {"data.valid", d.valid, validates},
              {"data.valid_target", d.valid_target, validates}};
  bool whole = true;
  for (const auto& [key, paths, read] : sets) {
    for (size_t i = 0; read && i < paths.size(); ++i) {
      const std::string item = fmt::format("{}[{}]", key, i);
      try {
        open_one(config, paths[i]);
      } catch (const Error& error) {
        whole = false;
        report.broken({item, "data.kind"}, "{}: {}", item, without_subsystem(error.what()));
      }
    }
  }
  if (!whole) return;
  try {
    open_data(config, /*check=*/true);
  } catch (const Error& error) {
    report.broken({"data.train", "data.kind", "training.global_batch_size", "model"}, "data: {}",
                  without_subsystem(error.what()));
  }
}

}  // namespace tessera
