#include "training/engine/run_options.h"

#include <algorithm>

#include "optim/optimizer.h"

namespace tessera {

at::ScalarType params_dtype(const PrecisionSection& precision) {
  switch (precision.params) {
    case ParamsDtype::kBf16:
      return at::kBFloat16;
    case ParamsDtype::kFp16:
      return at::kHalf;
    case ParamsDtype::kFp64:
      return at::kDouble;
    case ParamsDtype::kFp32:
      break;
  }
  return at::kFloat;
}

ShardingPolicy policy_of(const Config& config) {
  ShardingPolicy policy;
  policy.zero = config.parallel.zero;
  policy.reduce_per_micro_batch = config.parallel.reduce_per_micro_batch != AutoFlag::kFalse;
  policy.params = params_dtype(config.precision);
  policy.reduce = config.precision.reduce == ReduceDtype::kFp32   ? GradReduce::kWide
                  : config.precision.reduce == ReduceDtype::kBf16 ? GradReduce::kBf16
                                                                  : GradReduce::kBf16Wire;
  policy.moments_on_disk = !config.memory.offload_dir.empty();
  policy.offload_optimizer = config.memory.offload != Offload::kNone;
  policy.offload_gradients = config.memory.offload == Offload::kAll;
  policy.moments = static_cast<int>(moment_names(config.optimizer).size());
  policy.moment_dtype = moment_dtype(config.optimizer);
  return policy;
}

ExecutorOptions executor_options(const Config& config, int stages) {
  ExecutorOptions options;
  options.prefetch = config.parallel.prefetch;
  const int64_t reshard = config.parallel.reshard_after_forward;
  options.keep_gathered = reshard == kReshardAlways ? 1
                          : reshard == kReshardNever
                              ? stages
                              : static_cast<int>(std::min<int64_t>(reshard, stages));
  if (config.memory.recompute == Recompute::kFull)
    options.recompute_every = config.memory.recompute_every;
  options.overlap = config.debug.overlap;
  options.poison_released = config.debug.poison_released;
  if (config.precision.output != OutputDtype::kParams) {
    options.inputs = params_dtype(config.precision);
    options.outputs = config.precision.output == OutputDtype::kFp32 ? at::kFloat : at::kBFloat16;
  }
  return options;
}

TensorParallelOptions tensor_parallel_options(const Config& config) {
  TensorParallelOptions options;
  options.sequence_parallel = config.parallel.sequence_parallel;
  options.loss_chunk = config.memory.loss_chunk;
  options.overlap = config.parallel.tp_overlap;
  return options;
}

ModelOptions model_options(const Config& config) {
  ModelOptions options;
  options.seed = config.run.seed;
  options.activations = params_dtype(config.precision);
  options.buffers = config.precision.buffers == BufferDtype::kBf16 ? at::kBFloat16 : at::kFloat;
  options.selective_recompute = config.memory.recompute == Recompute::kSelective;
  options.tensor_parallel = tensor_parallel_options(config);
  return options;
}

}  // namespace tessera
