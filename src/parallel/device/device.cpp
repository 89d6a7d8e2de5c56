#include "parallel/device/device.h"

#include <ATen/Functions.h>

#include "base/error.h"

namespace tessera {
namespace {

at::Tensor allocate(const Device& device, const char* kind, at::IntArrayRef sizes,
                    const at::TensorOptions& options) {
  try {
    return at::empty(sizes, options);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& e) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    fail("device", "{}: {} bytes of {} memory are not to be had: {}", device.name(),
         numel * static_cast<int64_t>(options.dtype().itemsize()), kind,
         e.what_without_backtrace());
  }
}

}  // namespace

Device Device::of(at::Device device) {
  return device.is_cpu() ? Device() : cuda(device.index());
}

at::Device Device::torch_device() const {
  if (!gpu_) return at::kCPU;
  return {at::kCUDA, static_cast<at::DeviceIndex>(gpu_->index())};
}

at::Tensor Device::empty(at::IntArrayRef sizes, at::ScalarType dtype) const {
  return allocate(*this, "device", sizes, at::TensorOptions(torch_device()).dtype(dtype));
}

at::Tensor Device::zeros(at::IntArrayRef sizes, at::ScalarType dtype) const {
  return empty(sizes, dtype).zero_();
}

at::Tensor Device::empty_pinned(at::IntArrayRef sizes, at::ScalarType dtype) const {
  const auto host = at::TensorOptions(at::kCPU).dtype(dtype);
  return allocate(*this, "pinned host", sizes, host.pinned_memory(!is_cpu()));
}

at::Tensor Device::zeros_pinned(at::IntArrayRef sizes, at::ScalarType dtype) const {
  if (is_cpu()) return zeros(sizes, dtype);
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  std::shared_ptr<void> memory = gpu_->pinned(bytes);
  void* data = memory.get();
  return at::from_blob(
             data, sizes, [memory = std::move(memory)](void*) {}, dtype)
      .zero_();
}

// LibTorch's allocator of pinned memory knows of the copy and keeps the memory until it is done.
at::Tensor Device::upload(const at::Tensor& host) const {
  if (is_cpu() || !host.defined()) return host;
  const at::Tensor pinned = empty_pinned(host.sizes(), host.scalar_type()).copy_(host);
  return empty(host.sizes(), host.scalar_type()).copy_(pinned, /*non_blocking=*/true);
}

}  // namespace tessera
