#pragma once

#include "config/config.h"
#include "models/model_options.h"
#include "parallel/executor/step_executor.h"
#include "parallel/fsdp/sharding_policy.h"

namespace tessera {

// Translate a configuration into the options of a run's parts. They cannot fail: the configuration
// has passed check_config().

// The dtype in which stages see the parameters.
at::ScalarType params_dtype(const PrecisionSection& precision);

// How states are divided, held and reduced.
ShardingPolicy policy_of(const Config& config);

// `stages`: how many the chain has.
ExecutorOptions executor_options(const Config& config, int stages);

// How layers use tensor parallelism.
TensorParallelOptions tensor_parallel_options(const Config& config);

ModelOptions model_options(const Config& config);

}  // namespace tessera
