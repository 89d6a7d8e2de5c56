#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "parallel/comm/core/communicator.h"
#include "parallel/mesh.h"
#include "parallel/tensor_parallel/tp_overlap.h"

namespace tessera {

// How long the communication of a model's layers took on this rank, the wait for slower ranks
// included, and how much of it the layers waited for. Both are 0 on a GPU, where the host does not
// learn how long a stream took.
struct TpTime {
  double operations = 0.0;  // seconds
  double waited = 0.0;

  // The part that ran beside computation, 0 to 1.
  double hidden() const {
    return operations > 0.0 ? std::max(0.0, 1.0 - waited / operations) : 0.0;
  }
};

// Communication on its way, and the tensor that it fills.
class PendingTensor {
 public:
  PendingTensor() = default;
  PendingTensor(at::Tensor tensor, Work work, TpTime* time)
      : tensor_(std::move(tensor)), work_(std::move(work)), time_(time) {}

  // The tensor, when the communication has filled it: the CPU waits, a GPU's current stream does.
  at::Tensor get();

 private:
  at::Tensor tensor_;
  Work work_;
  TpTime* time_ = nullptr;
};

struct TensorParallelOptions {
  // Activations between layers are split over tp by tokens (Korthikanti et al. 2022): norms,
  // dropout and additions run on N / T rows.
  bool sequence_parallel = false;
  // Tokens of a rank's micro-batch whose logits exist at once; 0: see loss_chunk_tokens().
  int64_t loss_chunk = 0;
  TpOverlap overlap = TpOverlap::kBackward;
  TpTime* time = nullptr;  // unless null, the layers add up their times there; it outlives them
};

// clang-format off
// How the layers of one model split their work over the ranks of a tp group, and what travels
// between them. A small value that each layer gets by reference; the group outlives every graph.
//
// N is the number of tokens of a micro-batch. Between layers a rank holds rows
// [part * N / parts, (part + 1) * N / parts) of the [N, H] activations: all of them (parts = 1), or
// under sequence parallelism its own T-th. A rank's rows need not end where a sample does, so what
// travels is contiguous and N alone must divide by T.
//
//               without               sequence parallelism
//   gather      as it is              all-gather of the ranks' rows
//   sum         all-reduce            reduce-scatter: each rank's rows of the sum
// clang-format on
class TensorParallel {
 public:
  // Implicit: a group alone splits layers with the default options.
  TensorParallel(Communicator& group, TensorParallelOptions options = {})
      : group_(&group), options_(options) {}
  TensorParallel(Mesh& mesh, TensorParallelOptions options)
      : TensorParallel(mesh.tp_group(), options) {}

  Communicator& group() const { return *group_; }
  int size() const { return group_->size(); }
  int rank() const { return group_->rank(); }
  bool sequence_parallel() const { return options_.sequence_parallel && size() > 1; }
  // The same group for layers at which every rank holds all tokens.
  TensorParallel with_all_tokens() const;

  // Whether linear layers communicate in chunks.
  bool rings() const { return options_.overlap == TpOverlap::kRing && sequence_parallel(); }
  int64_t loss_chunk() const { return options_.loss_chunk; }

  int64_t token_parts() const { return sequence_parallel() ? size() : 1; }
  int64_t token_part() const { return sequence_parallel() ? rank() : 0; }
  // This rank's rows of x [N, ...], a view. Error unless the parts divide N.
  at::Tensor own_tokens(const at::Tensor& x) const;
  // The positions of this rank's rows in their samples, `samples` of `length` tokens each, as
  // integers of `options`.
  at::Tensor own_positions(int64_t samples, int64_t length, const at::TensorOptions& options) const;

  // [N / parts, C] of every rank -> [N, C].
  PendingTensor start_gather(const at::Tensor& own) const;
  at::Tensor gather(const at::Tensor& own) const { return start_gather(own).get(); }

  // Sum over tp of [N, C] -> [N / parts, C]. `partial` is contiguous and may be overwritten.
  PendingTensor start_sum(const at::Tensor& partial) const;
  // The same into `own` [N / parts, C], which without sequence parallelism is `partial` itself.
  PendingTensor start_sum_into(const at::Tensor& own, const at::Tensor& partial) const;
  at::Tensor sum(const at::Tensor& partial) const { return start_sum(partial).get(); }

  // Waits for an operation of the group and adds its duration to TensorParallelOptions::time.
  void wait(Work& work) const;
  // A result that needs no communication.
  PendingTensor done(at::Tensor tensor) const { return {std::move(tensor), {}, nullptr}; }

 private:
  PendingTensor started(at::Tensor tensor, Work work) const;

  Communicator* group_;
  TensorParallelOptions options_;
};

}  // namespace tessera
