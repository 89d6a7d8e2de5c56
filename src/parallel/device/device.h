#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/device/stream.h"

namespace tessera {

// Bytes of a device's memory, as LibTorch's allocator counts them.
struct DeviceMemory {
  int64_t allocated = 0;  // now
  int64_t peak = 0;       // the most so far
  int64_t limit = 0;      // what this process can have: what it holds and what is free
};

// Where a rank computes: the host, or one GPU. Callers use memory, streams and events of a Device
// without asking which of the two it is; on the host streams and events do nothing.
class Device {
 public:
  // What a GPU does in its own way. The host has no such object.
  class Gpu {
   public:
    virtual ~Gpu() = default;
    virtual int index() const = 0;
    virtual std::string name() const = 0;
    virtual void set_current() const = 0;
    virtual void synchronize() const = 0;
    virtual Stream current_stream() const = 0;
    virtual Stream new_stream(StreamPriority priority) const = 0;
    virtual Event new_event() const = 0;
    virtual DeviceMemory memory() const = 0;
    virtual std::shared_ptr<void> pinned(size_t bytes) const = 0;
  };

  // The host.
  Device() = default;

  // GPU `index` of those that this process sees. UserError if there is none of that number, with
  // the reason; and in a build without CUDA, always.
  static Device cuda(int index);
  // The Device of LibTorch's `device`, such as Communicator::device().
  static Device of(at::Device device);

  bool is_cpu() const { return gpu_ == nullptr; }
  at::Device torch_device() const;
  // "cpu", or such as "cuda:0 (NVIDIA H200)".
  std::string name() const { return gpu_ ? gpu_->name() : "cpu"; }

  // Makes the device the calling thread's: each thread that computes calls it once.
  void set_current() const {
    if (gpu_) gpu_->set_current();
  }

  // Uninitialised memory of the device, for use on the current stream. Error if it does not fit;
  // where a GPU is full, c10::OutOfMemoryError, as from LibTorch's own operators.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) const;
  at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType dtype) const;
  // Uninitialised host memory. For a GPU it is pinned: copies to and from it need no staging and
  // run beside the host (non_blocking). On the host it is plain memory.
  at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType dtype) const;

  // Zeros in host memory for the rest of a run. For a GPU it is pinned to the byte, while
  // LibTorch's (empty_pinned) is rounded up to a power of two and kept for reuse.
  at::Tensor zeros_pinned(at::IntArrayRef sizes, at::ScalarType dtype) const;

  // A small host tensor's copy on the device, through pinned memory; the host does not wait. On the
  // host the tensor itself. Undefined stays undefined.
  at::Tensor upload(const at::Tensor& host) const;

  // Of a GPU. Zeros on the host, whose memory other processes share.
  DeviceMemory memory() const { return gpu_ ? gpu_->memory() : DeviceMemory(); }

  // The calling thread's stream: what it computes goes there.
  Stream current_stream() const { return gpu_ ? gpu_->current_stream() : Stream(); }
  // A stream beside it. LibTorch has 32 of each priority; who asks for more gets one that is in
  // use.
  Stream new_stream(StreamPriority priority = StreamPriority::kNormal) const {
    return gpu_ ? gpu_->new_stream(priority) : Stream();
  }
  Event new_event() const { return gpu_ ? gpu_->new_event() : Event(); }

  // The host waits for all that was started on the device.
  void synchronize() const {
    if (gpu_) gpu_->synchronize();
  }

 private:
  explicit Device(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}

  std::shared_ptr<const Gpu> gpu_;
};

}  // namespace tessera
