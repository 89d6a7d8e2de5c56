#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

// Which keys a query reads: all of its sample's, or fewer. One of the two at most: where padding
// ends the rows, causal queries before it never see it.
struct AttentionMask {
  bool causal = false;     // query i reads keys 0 .. i
  at::Tensor key_lengths;  // int64 [B], each at least 1: keys from there on are padding; undefined:
                           // none
};

}  // namespace tessera
