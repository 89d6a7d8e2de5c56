#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// The first token of each of `samples` equally long samples: what a classifier reads. x [n, H] is
// what lies between layers, under sequence parallelism this rank's rows alone -> [samples, H],
// whole on every rank of tp, as is the gradient that comes back. From there on the ranks split
// words, not tokens (TensorParallel::with_all_tokens()). Error if the samples do not divide the
// tokens.
at::Tensor first_tokens(const at::Tensor& x, int64_t samples, const TensorParallel& tp);

}  // namespace tessera
