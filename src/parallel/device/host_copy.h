#pragma once

#include "parallel/device/device.h"

namespace tessera {

// Copies of large tensors from and to the host's ordinary memory, through a piece of pinned memory
// of at most kCopyChunkBytes: LibTorch never gives pinned memory back and rounds it up to a power
// of two, so a piece as large as the tensor would cost too much. Copies run on the current stream;
// the host waits for them.
inline constexpr int64_t kCopyChunkBytes = int64_t{64} << 20;

// tensor (contiguous, of the device) <- host, of equal shape and dtype.
void copy_from_host(const Device& device, const at::Tensor& tensor, const at::Tensor& host);

// to <- from, both flat, by way of `through`, as many elements at a time as that holds; the host
// waits for each.
void copy_in_chunks(const at::Tensor& to, const at::Tensor& from, const at::Tensor& through,
                    const Stream& stream);

}  // namespace tessera
