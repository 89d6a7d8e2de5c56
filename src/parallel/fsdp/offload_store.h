#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/device/device.h"
#include "parallel/fsdp/moment_store.h"
#include "parallel/memory_ledger.h"

namespace tessera {

// clang-format off
// States in pinned host memory, streamed through two buffers of the device while the optimizer
// walks over the buckets (ZeRO-Offload, Ren et al. 2021):
//
//   in        load 0 | load 1 |          load 2            ...   host -> device, buffer i % 2
//   compute          | update 0 | update 1 |               ...
//   out                         | store 0  | store 1       ...   device -> host
//
// The update runs on the device, with the kernels and so the bits of a run without offload. Events
// order all of it: load i waits for store i - 2, whose buffer it takes, and for the last store of its
// own bucket; update i for load i; store i for update i. The host waits for nothing.
// clang-format on
class OffloadStore final : public UpdateStore {
 public:
  // `trace` is told each load, update and store when it is started: for tests.
  explicit OffloadStore(const Device& device,
                        std::function<void(const std::string&)> trace = nullptr);

  struct States {
    at::Tensor master;
    std::vector<at::Tensor> moments;
    at::Tensor grad;  // undefined: it is not here
  };

  // Bytes that a state takes in a buffer, with the padding that aligns the next one.
  static int64_t padded_bytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }

  // The next bucket's states, flat tensors of Device::zeros_pinned(). `updated`: begin() and end()
  // will be called for it; `converted`: load_master() will be asked for another dtype. Returns the
  // bucket's number.
  int add(States host, bool updated, bool converted);
  // After the last add(): allocates the buffers on the device, large enough for any of the buckets.
  void allocate();

  // to <- the master of a bucket, converted, on the current stream.
  void load_master(int bucket, const at::Tensor& to);

  // The states of the bucket between begin() and end(), on the device.
  const States& on_device(int bucket) const { return buffers_[buffer_of(bucket)].states; }
  void begin(int bucket) override;
  void end(int bucket) noexcept override;
  // The host waits until its memory holds what the updates wrote.
  void release() override { out_.synchronize(); }

  // Adds the buffers on the device. The states in the host's memory are counted by their buckets.
  void add_to(MemoryLedger& ledger) const;

 private:
  struct Entry {
    States host;
    int next = -1;   // the bucket that is updated after this one
    int order = -1;  // its place in an update; -1: it has none
    bool converted = false;
    Event stored;
  };
  struct Buffer {
    at::Tensor memory;
    States states;  // views of it, of the bucket that it holds
    int bucket = -1;
    Event loaded, used;
  };

  size_t buffer_of(int bucket) const {
    return static_cast<size_t>(entries_[static_cast<size_t>(bucket)].order % 2);
  }
  void load(int bucket);
  void trace(const char* what, int bucket) const;

  Device device_;
  std::function<void(const std::string&)> trace_;
  Stream in_, out_;
  std::vector<Entry> entries_;
  int last_updated_ = -1;
  std::string error_;  // of an end()
  std::array<Buffer, 2> buffers_;
  at::Tensor wide_;  // a master on its way to a copy of another dtype
};

}  // namespace tessera
