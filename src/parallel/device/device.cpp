#include "parallel/device/device.h"

#include <ATen/Functions.h>

#include "base/error.h"

namespace tessera {
namespace {

at::Tensor allocate(const Device& device, const char* kind, at::IntArrayRef sizes,
                    const at::TensorOptions& options) {
  try {
    return at::empty(sizes, options);
  } catch (const c10::Error& e) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    fail("device", "{}: {} bytes of {} memory are not to be had: {}", device.name(),
         numel * static_cast<int64_t>(options.dtype().itemsize()), kind,
         e.what_without_backtrace());
  }
}

}  // namespace

at::Device Device::torch_device() const {
  if (!gpu_) return at::kCPU;
  return {at::kCUDA, static_cast<at::DeviceIndex>(gpu_->index())};
}

at::Tensor Device::empty(at::IntArrayRef sizes, at::ScalarType dtype) const {
  return allocate(*this, "device", sizes, at::TensorOptions(torch_device()).dtype(dtype));
}

at::Tensor Device::empty_pinned(at::IntArrayRef sizes, at::ScalarType dtype) const {
  const auto host = at::TensorOptions(at::kCPU).dtype(dtype);
  return allocate(*this, "pinned host", sizes, host.pinned_memory(!is_cpu()));
}

}  // namespace tessera
