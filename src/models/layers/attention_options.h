#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "models/layers/dropout.h"

namespace tessera {

// Sizes of an attention; heads are this rank's.
struct AttentionShape {
  int64_t batch;
  int64_t heads;
  int64_t kv_heads;  // divides heads: heads / kv_heads query heads read one kv head
  int64_t head_dim;
};

// What decides which attention probabilities are dropped.
struct AttentionDropout {
  DropoutPlace place;
  int64_t first_head;  // this rank's first query head among those of all tp ranks
  at::Tensor rows;     // MicroBatch::rows, int64 [B]

  bool drops() const { return place.drops(rows); }
};

// What computes an attention. Each has its own order of sums, so which one serves a case is part of
// the numbers of a run. kChosen is kBlocks where something is dropped, else kFlash on a CPU and
// kOperator on a GPU.
enum class AttentionKernel {
  kChosen,
  kFlash,     // LibTorch's fused kernel of the CPU; it cannot drop by counted masks
  kBlocks,    // our own (blocked_attention.h), which can; CPU only
  kOperator,  // LibTorch's operator, which chooses among a device's kernels
};

// Which keys a query reads (all of its sample's, or fewer), and what becomes of the probabilities.
struct AttentionOptions {
  bool causal = false;  // query i reads keys 0 .. i; there are as many keys as queries
  int64_t window = 0;   // of causal: keys that a query reads, its own included; 0: all before it
  // int64 [B], each at least 1: keys from there on are padding; undefined: none. Not with causal:
  // where padding ends the rows, causal queries before it never see it.
  at::Tensor key_lengths = {};
  std::optional<AttentionDropout> dropout = {};
  AttentionKernel kernel = AttentionKernel::kChosen;
};

// The heads of an attention, views of any strides.
struct AttentionHeads {
  at::Tensor q;  // [B, heads, S, D]
  at::Tensor k;  // [B, kv_heads, S', D]
  at::Tensor v;
};

// What a forward pass makes and its backward pass reads: of each block of query rows, in order, the
// output [B, heads, rows, D] and the logarithms of the rows' sums [B, heads, rows].
struct AttentionBlocks {
  std::vector<at::Tensor> outs;
  std::vector<at::Tensor> logsumexps;
};

}  // namespace tessera
