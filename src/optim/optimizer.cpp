#include "optim/optimizer.h"

#include <ATen/ATen.h>

#include "checkpoint/format/pieces.h"

namespace tessera {

std::vector<std::string> moment_names(const OptimizerConfig& config) {
  if (config.type != OptimizerType::kSgd) return {kStateExpAvg, kStateExpAvgSq};
  if (config.momentum != 0.0) return {kStateMomentum};
  return {};
}

std::vector<std::string> checkpoint_states(const OptimizerConfig& config) {
  std::vector<std::string> states = moment_names(config);
  states.insert(states.begin(), kStateParam);
  return states;
}

at::ScalarType moment_dtype(const OptimizerConfig& config) {
  return config.moments == MomentsDtype::kBf16 ? at::kBFloat16 : at::kFloat;
}

void apply_update(const std::vector<FlatBucket*>& buckets, const OptimizerConfig& config,
                  const Update& update) {
  for (FlatBucket* bucket : buckets) {
    if (!bucket->trainable()) continue;
    const BucketUpdate states = bucket->begin_update();
    for (const Segment& segment : bucket->update_segments()) {
      const ParameterSpec& spec = segment.parameter->spec;
      const double lr = update.lr * spec.lr_scale;
      const double decay = spec.weight_decay.value_or(spec.decay ? config.weight_decay : 0.0);
      const auto part = [&](const at::Tensor& state) {
        return state.narrow(0, segment.shard_offset, segment.slice.numel());
      };
      const at::Tensor master = part(states.master), grad = part(states.grad);
      const std::vector<at::Tensor>& moments = states.moments;
      if (config.type == OptimizerType::kSgd) {
        kernels::sgd(master, grad, moments.empty() ? at::Tensor() : part(moments[0]),
                     {lr, config.momentum, decay, config.nesterov}, update.grad);
      } else {
        kernels::adam(master, grad, part(moments.at(0)), part(moments.at(1)),
                      {lr, config.beta1, config.beta2, config.eps, decay,
                       config.type == OptimizerType::kAdamW, update.number},
                      update.grad);
      }
    }
  }
}

}  // namespace tessera
