// Device, Stream and Event of a GPU, on LibTorch's streams: what its operators compute, and what
// its allocator frees, knows of them.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/error.h"
#include "parallel/device/cuda_support.h"
#include "parallel/device/device.h"

namespace tessera {
namespace {

void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // or the next call reports it once more
  fail("device", "{} failed: {} ({})", call, cudaGetErrorString(code), cudaGetErrorName(code));
}

class CudaStream final : public Stream::Gpu {
 public:
  explicit CudaStream(c10::cuda::CUDAStream stream) : stream_(stream) {}

  const c10::cuda::CUDAStream& stream() const { return stream_; }

  void wait(const Event& event) override;
  void synchronize() const override { stream_.synchronize(); }
  bool idle() const override { return stream_.query(); }
  void* handle() const override { return stream_.stream(); }
  std::shared_ptr<void> enter() const override {
    return std::make_shared<c10::cuda::CUDAStreamGuard>(stream_);
  }

 private:
  c10::cuda::CUDAStream stream_;
};

// Without timing, which would make a record cost more. The CUDA object is made by the first record,
// on the device of its stream; CUDA lets it be destroyed while work is still on its way to it.
class CudaEvent final : public Event::Gpu {
 public:
  ~CudaEvent() override {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }

  void record(const Stream::Gpu& stream) override {
    const auto& line = static_cast<const CudaStream&>(stream).stream();
    const c10::cuda::CUDAGuard guard(line.device_index());
    if (event_ == nullptr) {
      check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    }
    check_cuda(cudaEventRecord(event_, line.stream()), "cudaEventRecord");
  }

  void synchronize() const override {
    if (event_ != nullptr) check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }

  bool passed() const override {
    if (event_ == nullptr) return true;
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check_cuda(code, "cudaEventQuery");
    return true;
  }

  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

void CudaStream::wait(const Event& event) {
  if (event.gpu() == nullptr) return;
  const cudaEvent_t point = static_cast<const CudaEvent&>(*event.gpu()).event();
  if (point == nullptr) return;  // never recorded
  const c10::cuda::CUDAGuard guard(stream_.device_index());
  check_cuda(cudaStreamWaitEvent(stream_.stream(), point, 0), "cudaStreamWaitEvent");
}

class CudaDevice final : public Device::Gpu {
 public:
  explicit CudaDevice(int index) : index_(static_cast<c10::DeviceIndex>(index)) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    name_ = fmt::format("cuda:{} ({})", index, properties.name);
  }

  int index() const override { return index_; }
  std::string name() const override { return name_; }
  void set_current() const override { check_cuda(cudaSetDevice(index_), "cudaSetDevice"); }
  void synchronize() const override {
    const c10::cuda::CUDAGuard guard(index_);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  Stream current_stream() const override {
    return Stream(std::make_shared<CudaStream>(c10::cuda::getCurrentCUDAStream(index_)));
  }
  Stream new_stream(StreamPriority priority) const override {
    const bool high = priority == StreamPriority::kHigh;
    return Stream(std::make_shared<CudaStream>(c10::cuda::getStreamFromPool(high, index_)));
  }
  Event new_event() const override { return Event(std::make_unique<CudaEvent>()); }
  DeviceMemory memory() const override {
    const c10::cuda::CUDAGuard guard(index_);
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index_);
    constexpr size_t kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return {stats.allocated_bytes[kAll].current, stats.allocated_bytes[kAll].peak,
            stats.reserved_bytes[kAll].current + static_cast<int64_t>(free)};
  }
  std::shared_ptr<void> pinned(size_t bytes) const override {
    const c10::cuda::CUDAGuard guard(index_);
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, std::max(bytes, size_t{1}), cudaHostAllocDefault),
               "cudaHostAlloc");
    return {memory, [](void* allocated) { static_cast<void>(cudaFreeHost(allocated)); }};
  }

 private:
  c10::DeviceIndex index_;
  std::string name_;
};

}  // namespace

Device Device::cuda(int index) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    fail_user("device",
              "cuda:{}: this process sees no GPU ({}); nvidia-smi must list one and "
              "CUDA_VISIBLE_DEVICES must not hide it, or compute on cpu",
              index, code == cudaSuccess ? "none is there" : cudaGetErrorString(code));
  }
  if (index < 0 || index >= count) {
    fail_user("device",
              "cuda:{}: this process sees {} GPUs, 0 to {}; start at most one rank per GPU of a "
              "node",
              index, count, count - 1);
  }
  return Device(std::make_shared<CudaDevice>(index));
}

int visible_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

bool built_with_cuda() {
  return true;
}

}  // namespace tessera
