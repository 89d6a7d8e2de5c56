#include "training/open_data.h"

#include "base/error.h"
#include "data/image_source.h"
#include "data/pair_source.h"
#include "data/token_source.h"

namespace tessera {
namespace {

// Positions that are checked before the start; a larger data set's are checked as they are read.
constexpr int64_t kPositionsCheckedAtStart = int64_t{1} << 26;

// `targets`: of pairs alone, the other side.
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

}  // namespace

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

}  // namespace tessera
