#include "parallel/device/host_copy.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera {

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

void copy_from_host(const Device& device, const at::Tensor& tensor, const at::Tensor& host) {
  if (tensor.numel() == 0) return;
  const int64_t chunk = std::min(tensor.numel(), kCopyChunkBytes / tensor.element_size());
  copy_in_chunks(tensor.view({-1}), host.view({-1}),
                 device.empty_pinned({chunk}, tensor.scalar_type()), device.current_stream());
}

}  // namespace tessera
