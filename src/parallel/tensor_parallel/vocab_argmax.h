#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/core/communicator.h"

namespace tessera {

// The column of the largest logit of each row of h W^T + b, the first of equals: what a model
// predicts. h [N, H] is the same on every rank of tp; weight [V/T, H] holds rows vocab_start... of
// W, bias [V/T] (or undefined) the same of b. Logits are never gathered: the largest value and its
// place are reduced over tp, [N] numbers each. Returns int64 [N], the same on every rank of tp.
at::Tensor vocab_parallel_argmax(const at::Tensor& h, const at::Tensor& weight,
                                 const at::Tensor& bias, int64_t vocab_start, Communicator& tp);

}  // namespace tessera
