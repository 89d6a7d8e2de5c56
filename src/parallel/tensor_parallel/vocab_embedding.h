#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace tessera {

// Vocab-parallel embedding (Shoeybi et al. 2019): this rank holds rows [vocab_start, +V/T) of the
// table. tokens int64 [B, S] -> [B*S, H] of `dtype`, summed over tp, so the same on all its ranks.
// `table` must require gradients for the result to have a graph; the gradient is added into
// table.grad.
at::Tensor vocab_parallel_embedding(const at::Tensor& tokens, Parameter& table, Communicator& tp,
                                    at::ScalarType dtype);

}  // namespace tessera
