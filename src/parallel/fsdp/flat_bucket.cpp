#include "parallel/fsdp/flat_bucket.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/kernels.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 64;  // elements; packs start at multiples of it

int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// A view of `flat` as a leaf that autograd sees as a tensor of its own.
at::Tensor view_of(const at::Tensor& flat, int64_t offset, const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (int64_t s : shape) numel *= s;
  return flat.narrow(0, offset, numel).view(shape).detach();
}

}  // namespace

FlatBucket::FlatBucket(std::string name, ParameterTable& table, Mesh& mesh, at::ScalarType dtype)
    : name_(std::move(name)), mesh_(mesh), dtype_(dtype) {
  // Layout: offsets of the packs first, since views need the final size.
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const auto& pack : table.packs()) {
    end = round_up(end, kAlignment);
    offsets.push_back(end);
    for (const Parameter* part : pack.parts) end += part->box.numel();
  }
  numel_ = round_up(end, kAlignment * mesh.dp_shard());
  resident_ = mesh.dp_shard() == 1 && dtype == at::kFloat;

  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  master_ = at::zeros({shard_numel()}, fp32);
  grad_ = at::zeros({shard_numel()}, fp32);
  exp_avg_ = at::zeros({shard_numel()}, fp32);
  exp_avg_sq_ = at::zeros({shard_numel()}, fp32);
  full_ = RepointableTensor(numel_, dtype);
  full_grad_ = RepointableTensor(numel_, dtype);
  if (resident_) {
    full_.point_at(master_.data_ptr());
    full_grad_.point_at(grad_.data_ptr());
  }

  const int64_t shard_begin = mesh.dp_shard_rank() * shard_numel();
  const int64_t shard_end = shard_begin + shard_numel();
  size_t index = 0;
  for (auto& pack : table.packs()) {
    int64_t offset = offsets[index++];
    int64_t rows = 0;
    for (const Parameter* part : pack.parts)
      if (!part->box.shape.empty()) rows += part->box.shape[0];
    std::vector<int64_t> pack_shape = pack.parts[0]->box.shape;
    if (!pack_shape.empty()) pack_shape[0] = rows;
    pack.value = view_of(full_.tensor(), offset, pack_shape);
    pack.grad = view_of(full_grad_.tensor(), offset, pack_shape);
    for (Parameter* part : pack.parts) {
      const int64_t numel = part->box.numel();
      part->value = view_of(full_.tensor(), offset, part->box.shape);
      part->grad = view_of(full_grad_.tensor(), offset, part->box.shape);
      // Code that leaves weight gradients to autograd finds the slot as .grad and adds into it.
      part->value.set_requires_grad(true);
      part->value.mutable_grad() = part->grad;
      const int64_t begin = std::max(offset, shard_begin);
      const int64_t stop = std::min(offset + numel, shard_end);
      if (begin < stop)
        segments_.push_back(
            {part, {part->box, begin - offset, stop - offset}, begin - shard_begin});
      offset += numel;
    }
  }
}

int64_t FlatBucket::slot_bytes() const {
  return resident_ ? 0 : numel_ * static_cast<int64_t>(c10::elementSize(dtype_));
}

int64_t FlatBucket::state_bytes() const {
  return static_cast<int64_t>(master_.nbytes() + grad_.nbytes() + exp_avg_.nbytes() +
                              exp_avg_sq_.nbytes());
}

void FlatBucket::start_gather(void* slot) {
  if (resident_) return;
  full_.point_at(slot);
  const at::Tensor own =
      full_.tensor().narrow(0, mesh_.dp_shard_rank() * shard_numel(), shard_numel());
  kernels::convert(own, master_);
  gather_ = mesh_.gather_group().all_gather(full_.tensor(), own);
}

void FlatBucket::wait_gather() {
  std::exchange(gather_, {}).wait();
}

void FlatBucket::release(void* poison) {
  if (!resident_) full_.release(poison);
}

void FlatBucket::begin_grad(void* slot, bool first) {
  if (resident_) {
    if (first) grad_.zero_();
    return;
  }
  full_grad_.point_at(slot);
  full_grad_.tensor().zero_();
}

void FlatBucket::start_reduce(bool first, const at::Tensor& staging) {
  if (resident_) return;
  staging_ = first ? at::Tensor() : staging.narrow(0, 0, shard_numel());
  reduce_ = mesh_.reduce_group().reduce_scatter(first ? grad_ : staging_, full_grad_.tensor());
}

void FlatBucket::wait_reduce() {
  std::exchange(reduce_, {}).wait();
  if (staging_.defined()) kernels::add_into(grad_, staging_);
  staging_ = at::Tensor();
  if (!resident_) full_grad_.release(nullptr);
}

void FlatBucket::abandon() noexcept {
  for (Work* work : {&gather_, &reduce_}) {
    if (work->done()) continue;
    try {
      mesh_.world().abort("another error ended the computation on rank " +
                          std::to_string(mesh_.world().rank()));
      work->block();
    } catch (const std::exception&) {
      // The operation ended as it was told to; the error that started this is on its way up.
    }
  }
}

}  // namespace tessera
