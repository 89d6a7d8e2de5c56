#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/optimizers.h"
#include "optim/optimizer_config.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// The moments that the optimizer keeps for each trained parameter, by their names in checkpoints,
// in the order of FlatBucket::moments(): exp_avg and exp_avg_sq; momentum; none for plain SGD.
std::vector<std::string> moment_names(const OptimizerConfig& config);

// All that a checkpoint of a training run holds of a trained parameter: param, then the moments.
std::vector<std::string> checkpoint_states(const OptimizerConfig& config);

// The moments' element type beside an fp32 master (an fp64 master's are fp64).
at::ScalarType moment_dtype(const OptimizerConfig& config);

// What one update takes besides the states.
struct Update {
  double lr;                  // of the step, before a group's lr_scale
  int64_t number;             // this update's, from 1: Adam's bias correction counts updates
  kernels::GradScalars grad;  // what clipping and the loss scale do to the gradient
};

// One update of all that this rank's optimizer holds, one fused pass per parameter. Learning rate
// and weight decay of a parameter are its spec's (matrices alone decay unless a group says
// otherwise); frozen buckets are passed over.
void apply_update(const std::vector<FlatBucket*>& buckets, const OptimizerConfig& config,
                  const Update& update);

}  // namespace tessera
