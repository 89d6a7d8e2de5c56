#include "training/loop/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "models/scores.h"

namespace tessera {
namespace {

// As many samples as asked for, in whole batches; the last batch of all data may be smaller.
int64_t samples_wanted(const Config& config, int64_t available) {
  const int64_t batch_size = config.training.global_batch_size;
  const auto& batches = config.eval.batches;
  // Divided, since the product may not fit.
  return batches && *batches <= available / batch_size ? *batches * batch_size : available;
}

}  // namespace

BatchShape batch_shape(const Config& config, const Mesh& mesh) {
  const bool fp64 = config.precision.params == ParamsDtype::kFp64;
  return {config.training.micro_batch_size, mesh.dp(), mesh.dp_rank(),
          fp64 ? at::kDouble : at::kFloat};
}

std::optional<EvalMetrics> evaluate(const Config& config, Engine& engine,
                                    const SampleSource& source, int64_t step,
                                    const std::function<bool(int64_t done)>& break_off) {
  const Sampler in_order(source.num_samples(), config.run.seed, /*shuffle=*/false);
  const BatchShape shape = batch_shape(config, engine.mesh());
  EvalMetrics eval;
  eval.step = step;
  eval.samples = samples_wanted(config, source.num_samples());
  // The sum of the batches' mean losses, each times its targets, and what the model counts.
  std::vector<double> sums(kMostScores, 0.0);
  size_t scores = 0;
  for (int64_t done = 0; done < eval.samples;) {
    if (break_off(done)) return std::nullopt;
    const int64_t size = std::min(config.training.global_batch_size, eval.samples - done);
    const auto samples = in_order.global_batch(done, size);
    const int64_t targets = counted_targets(source, samples);
    const int64_t micro_batches = num_micro_batches(size, shape.micro_batch_size, shape.dp);
    for (int64_t i = 0; i < micro_batches; ++i) {
      const auto found = engine.evaluate(load_micro_batch(source, samples, shape, i, std::nullopt));
      scores = found.size();
      sums[kLossSum] += found[kLossSum] * static_cast<double>(targets);
      for (size_t k = 1; k < scores; ++k) sums[k] += found[k];
    }
    eval.targets += targets;
    done += size;
  }
  if (engine.mesh().tp_rank() != 0) std::fill(sums.begin(), sums.end(), 0.0);
  at::Tensor sum = at::tensor(sums, at::kDouble);
  engine.mesh().world().all_reduce(sum, ReduceOp::kSum).wait();
  const auto mean = [&](size_t score, int64_t count) {
    return sum[static_cast<int64_t>(score)].item<double>() / static_cast<double>(count);
  };
  eval.loss = mean(kLossSum, eval.targets);
  if (scores > kRightTargets) eval.accuracy = mean(kRightTargets, eval.targets);
  if (scores > kRightSamples && config.data.kind == DataKind::kPairs)
    eval.exact_match = mean(kRightSamples, eval.samples);
  return eval;
}

}  // namespace tessera
