#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/fsdp/repointable_tensor.h"
#include "parallel/mesh.h"
#include "parallel/parameter.h"

namespace tessera {

// The part of one parameter that lies in this rank's shard.
struct Segment {
  Parameter* parameter;
  BoxSlice slice;        // where it lies in the whole tensor
  int64_t shard_offset;  // first element in the shard
};

// clang-format off
// The parameters of one stage as one flat tensor (ZeRO-3, Rajbhandari et al. 2020; flat and padded
// once as in FSDP, Zhao et al. 2023).
//
//   full    | q_proj k_proj v_proj | o_proj | norm | ... | pad |   numel() elements, params dtype
//   shards  |   rank 0   |   rank 1   |   rank 2   |   rank 3  |   shard_numel() each, fp32 master
//
// Invariants
// - Packs start at a multiple of 64 elements; a pack's parts have no gap. The pad is at the end.
// - The rank owns elements [rank * shard_numel, (rank + 1) * shard_numel) of every state: master,
//   grad, exp_avg and exp_avg_sq are one contiguous array each, pad and gaps included (always zero).
// - `full` and `full_grad` are re-pointable: the executor points them at ring slots. Where the group
//   has one rank and the dtype is the master's, they point at master and grad for good (resident):
//   gathering and reducing are then the identity and no slot is needed.
// clang-format on
class FlatBucket {
 public:
  // Takes the table's parameters; sets their value, grad and packs. The table outlives the bucket.
  FlatBucket(std::string name, ParameterTable& table, Mesh& mesh, at::ScalarType dtype);

  const std::string& name() const { return name_; }
  int64_t numel() const { return numel_; }
  int64_t shard_numel() const { return numel_ / mesh_.dp_shard(); }
  int64_t slot_bytes() const;
  // Bytes of master, gradient and moments on this rank.
  int64_t state_bytes() const;
  bool resident() const { return resident_; }
  const std::vector<Segment>& segments() const { return segments_; }

  at::Tensor& master() { return master_; }
  at::Tensor& grad() { return grad_; }
  at::Tensor& exp_avg() { return exp_avg_; }
  at::Tensor& exp_avg_sq() { return exp_avg_sq_; }

  // Starts the gather of the parameters into `slot`; wait_gather() makes them usable.
  void start_gather(void* slot);
  void wait_gather();
  void release(void* poison);

  // Points the gradient at `slot` and zeroes it; start_reduce() sums it over the group into the
  // shard's gradient, which wait_reduce() completes. `first` (the first micro-batch of a step): the
  // shard's gradient is overwritten, else added to; `staging` holds shard_numel() fp32 elements.
  void begin_grad(void* slot, bool first);
  void start_reduce(bool first, const at::Tensor& staging);
  void wait_reduce();

  // For the error path: if a gather or a reduce is still on its way, aborts the world and returns
  // when this rank's memory is no longer touched.
  void abandon() noexcept;

 private:
  std::string name_;
  Mesh& mesh_;
  at::ScalarType dtype_;
  int64_t numel_ = 0;
  bool resident_ = false;
  std::vector<Segment> segments_;
  at::Tensor master_, grad_, exp_avg_, exp_avg_sq_;
  RepointableTensor full_, full_grad_;
  Work gather_, reduce_;
  at::Tensor staging_;  // defined while a reduce that adds is on its way
};

}  // namespace tessera
