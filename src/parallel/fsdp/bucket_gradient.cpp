#include "parallel/fsdp/bucket_gradient.h"

#include <ATen/ATen.h>

#include "kernels/kernels.h"

namespace tessera {
namespace {

int64_t bytes_of(int64_t numel, at::ScalarType dtype) {
  return numel * static_cast<int64_t>(c10::elementSize(dtype));
}

// `numel` elements of a byte buffer, from byte `offset` on.
at::Tensor part_of(const at::Tensor& bytes, int64_t offset, int64_t numel, at::ScalarType dtype) {
  return bytes.narrow(0, offset, bytes_of(numel, dtype)).view(dtype);
}

}  // namespace

BucketGradient::BucketGradient(Mesh& mesh, const BucketPlacement& placement, int64_t numel)
    : mesh_(mesh),
      placement_(placement),
      numel_(numel),
      shard_(numel / mesh.dp_shard()),
      direct_(placement.adds_directly()),
      view_(numel, placement.params(), mesh.device().torch_device()) {
  const at::ScalarType wide = placement.wide();
  if (offloaded()) {
    kept_ = mesh.device().zeros_pinned({shard_}, wide);
    return;
  }
  const bool full = placement.keeps_full_gradient();
  kept_ = mesh.device().zeros({full ? numel : shard_}, wide);
  own_ = full ? kept_.narrow(0, mesh.dp_shard_rank() * shard_, shard_) : kept_;
  if (direct_) view_.point_at(kept_.data_ptr());
}

int64_t BucketGradient::slot_bytes() const {
  return direct_ ? 0 : bytes_of(numel_, placement_.params());
}

int64_t BucketGradient::staging_numel() const {
  return placement_.adds_reductions() ? shard_ : 0;
}

int64_t BucketGradient::wire_bytes() const {
  if (placement_.reduce() == GradReduce::kWide) return 0;
  return bytes_of(numel_, at::kBFloat16) + bytes_of(shard_, at::kBFloat16);
}

void BucketGradient::add_to(MemoryLedger& ledger) const {
  ledger.add(class_of(placement_.gradient_place(), MemoryClass::kGradients),
             static_cast<int64_t>(kept_.nbytes()));
}

void BucketGradient::begin(void* slot, bool first) {
  if (direct_) {
    if (first) kept_.zero_();
    return;
  }
  begun_ = true;
  view_.point_at(slot);
  view_.tensor().zero_();
}

bool BucketGradient::start_reduce(const ReduceStep& step, const ReduceBuffers& buffers) {
  begun_ = false;
  if (offloaded()) {
    own_ = buffers.shard_slot.narrow(0, 0, shard_);
    if (!step.first) own_.copy_(kept_, /*non_blocking=*/true);
  }
  first_ = step.first;
  last_ = step.last;
  phase_ = Phase::kReduceScatter;
  if (placement_.reduces_each_use(step.single)) {
    if (direct_) return false;  // there is one shard: the backward pass has made the sum
    reduce_scatter(view(), buffers);
    return true;
  }
  if (!direct_) add_up(kept_, view(), first_);
  if (!last_) return false;
  first_ = true;  // the reduce-scatter brings the whole step's sum: nothing is to be added to it
  reduce_scatter(kept_, buffers);
  return true;
}

void BucketGradient::add_up(const at::Tensor& to, const at::Tensor& from, bool first) {
  if (first)
    kernels::convert(to, from);
  else
    kernels::add_into(to, from);
}

void BucketGradient::reduce_scatter(const at::Tensor& from, const ReduceBuffers& buffers) {
  at::Tensor sent = from;
  arriving_ = first_ ? own_ : buffers.staging.narrow(0, 0, shard_);
  if (placement_.reduce() != GradReduce::kWide) {
    if (sent.scalar_type() != at::kBFloat16) {
      sent = part_of(buffers.wire, 0, numel_, at::kBFloat16);
      kernels::convert(sent, from);
    }
    if (placement_.reduce() == GradReduce::kBf16)
      arriving_ = part_of(buffers.wire, bytes_of(numel_, at::kBFloat16), shard_, at::kBFloat16);
  }
  work_ = mesh_.reduce_group().reduce_scatter(arriving_, sent);
}

bool BucketGradient::advance() {
  std::exchange(work_, {}).wait();
  return next_phase();
}

bool BucketGradient::next_phase() {
  if (phase_ == Phase::kReduceScatter) {
    if (arriving_.defined() && arriving_.data_ptr() != own_.data_ptr())
      add_up(own_, arriving_, first_);
    arriving_ = at::Tensor();
    // Not if the next backward pass of a bucket with several uses has pointed it at another slot.
    if (!direct_ && !begun_) view_.release(nullptr);
    if (last_ && placement_.reduces_over_replicas()) {
      phase_ = Phase::kAllReduce;
      work_ = mesh_.replicate_group().all_reduce(own_, ReduceOp::kSum);
      return true;
    }
  }
  if (last_ && phase_ != Phase::kAllGather && placement_.gathers_gradient()) {
    phase_ = Phase::kAllGather;
    work_ = mesh_.reduce_group().all_gather(kept_, own_);
    return true;
  }
  phase_ = Phase::kIdle;
  if (offloaded()) kept_.copy_(std::exchange(own_, {}), /*non_blocking=*/true);
  return false;
}

}  // namespace tessera
