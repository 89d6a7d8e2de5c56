#include "parallel/device/host_copy.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera {
namespace {

void copy_through_pinned(const Device& device, const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == 0) return;
  const int64_t chunk = std::min(to.numel(), kCopyChunkBytes / to.element_size());
  copy_in_chunks(to.view({-1}), from.view({-1}), device.empty_pinned({chunk}, to.scalar_type()),
                 device.current_stream());
}

}  // namespace

void copy_in_chunks(const at::Tensor& to, const at::Tensor& from, const at::Tensor& through,
                    const Stream& stream) {
  for (int64_t begin = 0; begin < to.numel(); begin += through.numel()) {
    const int64_t n = std::min(through.numel(), to.numel() - begin);
    at::Tensor part = through.narrow(0, 0, n);
    part.copy_(from.narrow(0, begin, n), /*non_blocking=*/true);
    stream.synchronize();
    to.narrow(0, begin, n).copy_(part, /*non_blocking=*/true);
    stream.synchronize();
  }
}

at::Tensor host_copy(const Device& device, const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  const at::Tensor host = at::empty_like(tensor, at::kCPU);
  copy_through_pinned(device, host, tensor);
  return host;
}

void copy_from_host(const Device& device, const at::Tensor& tensor, const at::Tensor& host) {
  copy_through_pinned(device, tensor, host);
}

}  // namespace tessera
