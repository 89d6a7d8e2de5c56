#pragma once

#include "parallel/parameter.h"
#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// Vocab-parallel embedding (Shoeybi et al. 2019): this rank holds some rows of the table, whose box
// says which. tokens int64 [B, S] -> [n, H] of `dtype`, summed over tp: all N = B*S rows, the same
// on all ranks of tp, or under sequence parallelism this rank's n = N / T. `table` must require
// gradients for the result to have a graph; the gradient is added into table.grad.
at::Tensor vocab_parallel_embedding(const at::Tensor& tokens, Parameter& table,
                                    const TensorParallel& tp, at::ScalarType dtype);

}  // namespace tessera
