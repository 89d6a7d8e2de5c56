#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// A place in the model where values are dropped. Its masks are a function of the seed, the place's
// name, the row of the run (MicroBatch::rows), the position and the channel (or head and key)
// alone.
struct DropoutPlace {
  // p in [0, 1); 0: nothing is dropped here. The name is fixed for ever: it decides the masks.
  DropoutPlace(double rate, uint64_t seed, std::string_view name);

  // Not in evaluation: no micro-batch names its rows there.
  bool drops(const at::Tensor& rows) const { return p > 0 && rows.defined(); }

  double p;
  uint64_t key;
};

// x [B*S, C], or under sequence parallelism this rank's part of those rows, with elements dropped
// and the others scaled by 1 / (1 - p); x itself where p is 0 or `rows` is undefined (evaluation).
// Nothing is kept for the backward pass but the rows' numbers. Error if the B rows do not divide
// the tokens of all parts.
at::Tensor dropout(const at::Tensor& x, const DropoutPlace& place, const at::Tensor& rows,
                   const TensorParallel& tp);

// The same between a column- and a row-parallel layer: x [B*S, C / T] has all tokens, and this
// rank's of the columns.
at::Tensor column_dropout(const at::Tensor& x, const DropoutPlace& place, const at::Tensor& rows,
                          const TensorParallel& tp);

}  // namespace tessera
