#include "parallel/fsdp/flat_bucket.h"

#include <ATen/ATen.h>

#include "kernels/kernels.h"

namespace tessera {
namespace {

// A view of `flat` as a leaf that autograd sees as a tensor of its own.
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
      options_(options),
      layout_(std::move(packs), mesh.dp_shard()),
      resident_(!options.policy.offload_optimizer &&
                options.params == master_dtype(options.params) &&
                (options.policy.zero == 0 || mesh.dp_shard() == 1)),
      full_(layout_.numel, options.params, mesh.device().torch_device()) {
  const int64_t begin = mesh.dp_shard_rank() * shard_numel();
  const bool whole = options.policy.zero == 0;
  segments_ = layout_.segments(begin, begin + shard_numel(), whole ? 0 : begin);
  update_segments_ = whole ? layout_.segments(0, numel(), 0) : segments_;
  allocate();
  bind_parameters();
}

void FlatBucket::allocate() {
  const at::ScalarType wide = master_dtype(options_.params);
  const int64_t begin = mesh_.dp_shard_rank() * shard_numel();
  const int64_t held = options_.policy.zero == 0 ? numel() : shard_numel();
  const bool offloads = options_.policy.offload_optimizer;
  const auto state = [&](at::ScalarType dtype) {
    return offloads ? device().zeros_pinned({held}, dtype) : device().zeros({held}, dtype);
  };
  if (!resident_ && options_.policy.keeps_full_parameters()) {
    full_memory_ = device().zeros({numel()}, options_.params);
    full_.point_at(full_memory_.data_ptr());
    if (options_.params == wide && !offloads) master_ = full_memory_.narrow(0, begin, held);
  }
  if (!master_.defined()) master_ = state(wide);
  if (resident_) full_.point_at(master_.data_ptr());
  if (options_.trainable) allocate_trained(held, state);
  if (offloads)
    place_in_store_ = options_.offload->add(
        {master_, moments_, gradient_ && gradient_->offloaded() ? gradient_->kept() : at::Tensor()},
        options_.trainable, options_.params != wide);
}

void FlatBucket::allocate_trained(int64_t held,
                                  const std::function<at::Tensor(at::ScalarType)>& state) {
  const at::ScalarType wide = master_dtype(options_.params);
  gradient_.emplace(mesh_, options_.policy, options_.params, numel(), options_.uses);
  const int moments = options_.policy.moments;
  const at::ScalarType dtype = wide == at::kDouble ? wide : options_.policy.moment_dtype;
  if (options_.moments) {
    StoredMoments stored = options_.moments->add_bucket(moments, held, dtype);
    place_in_store_ = stored.bucket;
    moments_ = std::move(stored.moments);
    return;
  }
  for (int i = 0; i < moments; ++i) moments_.push_back(state(dtype));
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
        // Code that leaves weight gradients to autograd finds the slot as .grad and adds into it.
        part->grad = view_of(gradient_->view(), offset, part->box.shape);
        part->value.mutable_grad() = part->grad;
      }
      offset += part->box.numel();
    }
  }
}

// What a module's own constructor has drawn.
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
  const bool offloads = options_.policy.offload_optimizer;
  // A master that is a slice of the full copy is counted there.
  if (!full_memory_.defined() || options_.params != master_.scalar_type() || offloads)
    ledger.add(offloads ? MemoryClass::kOffloadHost : MemoryClass::kMaster, bytes(master_));
  const auto place = offloads           ? MemoryClass::kOffloadHost
                     : options_.moments ? MemoryClass::kOffloadFile
                                        : MemoryClass::kMoments;
  for (const auto& moment : moments_) ledger.add(place, bytes(moment));
  if (gradient_) gradient_->add_to(ledger);
}

int64_t FlatBucket::gather_slot_bytes() const {
  return resident_ || options_.policy.keeps_full_parameters()
             ? 0
             : numel() * static_cast<int64_t>(c10::elementSize(options_.params));
}

bool FlatBucket::start_gather(void* slot) {
  if (resident_) return false;
  if (refreshes()) {
    if (!std::exchange(changed_, false)) return false;
  } else {
    full_.point_at(slot);
  }
  if (options_.policy.zero == 0) {
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
  if (options_.offload)
    options_.offload->load_master(place_in_store_, to);
  else
    kernels::convert(to, master_);
}

BucketUpdate FlatBucket::begin_update() {
  if (options_.offload) {
    StoreUse use(*options_.offload, place_in_store_);
    const OffloadStore::States& states = options_.offload->on_device(place_in_store_);
    return {std::move(use), states.master, states.grad.defined() ? states.grad : grad(),
            states.moments};
  }
  return {options_.moments ? StoreUse(*options_.moments, place_in_store_) : StoreUse(), master_,
          grad(), moments_};
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
      mesh_.world().abort("another error ended the computation on rank " +
                          std::to_string(mesh_.world().rank()));
      work->block();
    } catch (const std::exception&) {
      // The operation ended as it was told to; the error that started this is on its way up.
    }
  }
}

}  // namespace tessera
