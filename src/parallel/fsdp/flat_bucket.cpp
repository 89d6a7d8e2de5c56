#include "parallel/fsdp/flat_bucket.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/kernels.h"

namespace tessera {
namespace {

// Elements of `flat` from `offset` on, in this shape. detach() makes it a leaf: autograd sees no
// view, but a tensor of its own.
at::Tensor view_of(const at::Tensor& flat, int64_t offset, const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (int64_t s : shape) numel *= s;
  return flat.narrow(0, offset, numel).view(shape).detach();
}

std::vector<int64_t> shape_of(const ParameterPack& pack) {
  std::vector<int64_t> shape = pack.parts[0]->box.shape;
  if (shape.empty()) return shape;
  shape[0] = 0;
  for (const Parameter* part : pack.parts) shape[0] += part->box.shape[0];
  return shape;
}

}  // namespace

FlatBucket::FlatBucket(std::string name, std::vector<ParameterPack*> packs, Mesh& mesh,
                       const BucketOptions& options)
    : name_(std::move(name)),
      mesh_(mesh),
      placement_(options.placement(mesh.shape())),
      moment_store_(options.moments),
      offload_(options.offload),
      layout_(std::move(packs), mesh.dp_shard()),
      full_(layout_.numel, options.params, mesh.device().torch_device()) {
  const bool on_disk = placement_.moments_place() == StatePlace::kFile;
  const bool offloads = placement_.master_place() == StatePlace::kPinnedHost;
  if (on_disk != (moment_store_ != nullptr) || offloads != (offload_ != nullptr))
    fail("bucket",
         "{}: its policy has moments {} and states {}, but a store of moments is {} and an offload "
         "store is {}; give exactly the stores that the policy needs",
         name_, on_disk ? "on disk" : "in memory", offloads ? "offloaded" : "on the device",
         moment_store_ ? "given" : "not given", offload_ ? "given" : "not given");
  const int64_t begin = mesh.dp_shard_rank() * shard_numel();
  const bool whole = placement_.updates_everything();
  segments_ = layout_.segments(begin, begin + shard_numel(), whole ? 0 : begin);
  update_segments_ = whole ? layout_.segments(0, numel(), 0) : segments_;
  allocate();
  bind_parameters();
}

// A new state of zeros, as large as what this rank updates, in the memory that the policy chose.
at::Tensor FlatBucket::zero_state(at::ScalarType dtype) const {
  return offload_ ? device().zeros_pinned({updated_numel()}, dtype)
                  : device().zeros({updated_numel()}, dtype);
}

void FlatBucket::allocate() {
  const FullCopy full_copy = placement_.full_copy();
  if (full_copy == FullCopy::kKept) {
    full_memory_ = device().zeros({numel()}, placement_.params());
    full_.point_at(full_memory_.data_ptr());
  }
  master_ = placement_.master_in_copy()
                ? full_memory_.narrow(0, mesh_.dp_shard_rank() * shard_numel(), shard_numel())
                : zero_state(placement_.wide());
  if (full_copy == FullCopy::kResident) full_.point_at(master_.data_ptr());
  if (trainable()) {
    gradient_.emplace(mesh_, placement_, numel());
    allocate_moments();
  }
  if (!offload_) return;
  const bool grad = trainable() && placement_.gradient_place() == StatePlace::kPinnedHost;
  place_in_store_ =
      offload_->add({master_, moments_, grad ? gradient_->kept() : at::Tensor()}, trainable(),
                    /*converted=*/placement_.params() != placement_.wide());
}

void FlatBucket::allocate_moments() {
  const int count = placement_.moments();
  if (moment_store_) {
    StoredMoments stored =
        moment_store_->add_bucket(count, updated_numel(), placement_.moment_dtype());
    place_in_store_ = stored.bucket;
    moments_ = std::move(stored.moments);
    return;
  }
  for (int i = 0; i < count; ++i) moments_.push_back(zero_state(placement_.moment_dtype()));
}

void FlatBucket::bind_parameters() {
  for (size_t i = 0; i < layout_.packs.size(); ++i) {
    ParameterPack& pack = *layout_.packs[i];
    int64_t offset = layout_.offsets[i];
    pack.value = view_of(full_.tensor(), offset, shape_of(pack));
    if (trainable()) pack.grad = view_of(gradient_->view(), offset, shape_of(pack));
    for (Parameter* part : pack.parts) {
      const at::Tensor value = view_of(full_.tensor(), offset, part->box.shape);
      if (part->module_tensor.defined()) {
        take_values(*part);
        part->module_tensor.set_data(value);
        part->value = part->module_tensor;
      } else {
        part->value = value;
      }
      part->value.set_requires_grad(trainable());
      if (trainable()) {
        // Our layers add into Parameter::grad themselves; for modules autograd adds into .grad, so
        // both are the same memory.
        part->grad = view_of(gradient_->view(), offset, part->box.shape);
        part->value.mutable_grad() = part->grad;
      }
      offset += part->box.numel();
    }
  }
}

// The master starts from the values that a module's own constructor has drawn.
void FlatBucket::take_values(const Parameter& part) {
  at::NoGradGuard no_grad;
  const at::Tensor values = part.module_tensor.detach().reshape({-1});
  for (const Segment& segment : update_segments_) {
    if (segment.parameter != &part) continue;
    master_.narrow(0, segment.shard_offset, segment.slice.numel())
        .copy_(values.narrow(0, segment.slice.begin, segment.slice.numel()));
  }
}

void FlatBucket::add_to(MemoryLedger& ledger) const {
  const auto bytes = [](const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); };
  if (full_memory_.defined()) ledger.add(MemoryClass::kParameters, bytes(full_memory_));
  // A master that is a part of the full copy is counted there.
  if (!full_memory_.defined() || !master_.is_alias_of(full_memory_))
    ledger.add(class_of(placement_.master_place(), MemoryClass::kMaster), bytes(master_));
  for (const auto& moment : moments_)
    ledger.add(class_of(placement_.moments_place(), MemoryClass::kMoments), bytes(moment));
  if (gradient_) gradient_->add_to(ledger);
}

int64_t FlatBucket::gather_slot_bytes() const {
  return placement_.full_copy() == FullCopy::kGathered
             ? numel() * static_cast<int64_t>(c10::elementSize(placement_.params()))
             : 0;
}

bool FlatBucket::start_gather(void* slot) {
  switch (placement_.full_copy()) {
    case FullCopy::kResident:
      return false;
    case FullCopy::kKept:
      if (!std::exchange(changed_, false)) return false;
      break;
    case FullCopy::kGathered:
      full_.point_at(slot);
      break;
  }
  if (placement_.updates_everything()) {
    copy_master(full_.tensor());
    return true;
  }
  const at::Tensor own =
      full_.tensor().narrow(0, mesh_.dp_shard_rank() * shard_numel(), shard_numel());
  if (own.data_ptr() != master_.data_ptr()) copy_master(own);
  gather_ = mesh_.gather_group().all_gather(full_.tensor(), own);
  return true;
}

void FlatBucket::copy_master(const at::Tensor& to) {
  if (offload_)
    offload_->load_master(place_in_store_, to);
  else
    kernels::convert(to, master_);
}

BucketUpdate FlatBucket::begin_update() {
  if (offload_) {
    StoreUse use(*offload_, place_in_store_);
    const OffloadStore::States& states = offload_->on_device(place_in_store_);
    return {std::move(use), states.master, states.grad.defined() ? states.grad : grad(),
            states.moments};
  }
  return {moment_store_ ? StoreUse(*moment_store_, place_in_store_) : StoreUse(), master_, grad(),
          moments_};
}

void FlatBucket::wait_gather() {
  std::exchange(gather_, {}).wait();
}

void FlatBucket::release(void* poison) {
  if (gather_slot_bytes() > 0) full_.release(poison);
}

void FlatBucket::abandon() noexcept {
  std::vector<Work*> works = {&gather_};
  if (gradient_) works.push_back(&gradient_->work());
  for (Work* work : works) {
    if (work->done()) continue;
    try {
      Communicator& world = mesh_.world();
      world.abort("another error ended the computation on " + world.rank_text(world.rank()));
      work->block();
    } catch (const std::exception&) {
      // The operation ended as it was told to; the error that started this is on its way up.
    }
  }
}

}  // namespace tessera
