#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Dropout whose masks are counted, not drawn (Salmon et al. 2011): whether an element is dropped is
// a function of (key, row of the run, position, index) alone. The backward pass computes the mask
// again, and so does any mesh, any split into micro-batches and a resumed run.
namespace tessera::kernels {

struct DropoutRate {
  // p in [0, 1): the part of the elements that become 0; the others are scaled by 1 / (1 - p).
  explicit DropoutRate(double p);

  uint32_t threshold;  // words below it drop their element: p to within 2^-32
  double scale;
};

// Which tokens a tensor [n, H] holds, since masks depend on that: its row i is position (first + i)
// % positions of the run's row rows[(first + i) / positions] (MicroBatch::rows), and its column 0
// is column first_column of the whole activation.
struct DropoutTokens {
  at::Tensor rows;  // int64 [B]
  int64_t positions;
  int64_t first = 0;
  int64_t first_column = 0;
};

// y <- x with elements dropped. x, y [n, H], y may be x. The gradient w.r.t. x is the same function
// of the gradient w.r.t. y.
void dropout(const at::Tensor& x, const DropoutTokens& tokens, const DropoutRate& rate,
             uint64_t key, const at::Tensor& y);

// Query rows of some heads that read the same keys: row r of a tensor is query first_query + r %
// queries of head r / queries, and reads all keys, or if causal keys 0 .. its own position.
struct AttentionRows {
  int64_t queries;
  int64_t first_query;
  bool causal;
  double scale;               // of the scores
  int64_t row;                // number of the sample's row in the run
  const uint64_t* head_keys;  // of the masks, one a head
};

// softmax with dropout, row by row: scores [R, K] (products of q and k, fp32 or fp64) are
// overwritten by dropped probabilities, 0 at keys that a query does not read; logsumexp [R] of the
// scaled scores is written for the backward pass.
void attention_softmax(const at::Tensor& scores, const AttentionRows& rows, const DropoutRate& rate,
                       const at::Tensor& logsumexp);

// The backward pass. Comes with the same products in `scores` and d loss / d (dropped
// probabilities) in `grad` [R, K]; leaves the dropped probabilities in `scores` and d loss / d
// products in `grad`. delta [R] is the sum over a head's columns of output times its gradient (Dao
// et al. 2022).
void attention_softmax_backward(const at::Tensor& scores, const at::Tensor& grad,
                                const AttentionRows& rows, const DropoutRate& rate,
                                const at::Tensor& logsumexp, const at::Tensor& delta);

}  // namespace tessera::kernels
