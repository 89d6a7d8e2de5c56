#pragma once

#include "parallel/device/device.h"

namespace tessera {

// Large tensors to and from the host's ordinary memory, through pinned memory of at most
// kCopyChunkBytes (LibTorch keeps what it has pinned for ever, and rounds it up to a power of two).
// They run on the current stream; the host waits for them.
inline constexpr int64_t kCopyChunkBytes = int64_t{64} << 20;

// A copy in the host's memory of a contiguous tensor of the device; of a host's tensor itself.
at::Tensor host_copy(const Device& device, const at::Tensor& tensor);

// tensor (contiguous, of the device) <- host, of equal shape and dtype.
void copy_from_host(const Device& device, const at::Tensor& tensor, const at::Tensor& host);

// to <- from, both flat, by way of `through`, as many elements at a time as that holds; the host
// waits for each.
void copy_in_chunks(const at::Tensor& to, const at::Tensor& from, const at::Tensor& through,
                    const Stream& stream);

}  // namespace tessera
