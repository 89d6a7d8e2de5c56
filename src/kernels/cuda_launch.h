#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/error.h"

// What the .cu files share. Threads of a warp touch neighbouring elements; sums go through warp
// shuffles in an order that depends on sizes alone, so that results are the same in every run.
namespace tessera::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kThreads = 256;  // of every block

// Where kernels are launched: the tensor's GPU, and the calling thread's stream there.
class Launch {
 public:
  Launch(const char* kernel, const at::Tensor& on)
      : kernel_(kernel),
        guard_(on.device()),
        stream_(c10::cuda::getCurrentCUDAStream(on.device().index())) {}

  cudaStream_t stream() const { return stream_.stream(); }

  // After the launches: an Error if CUDA could not start one of them.
  void check() const {
    const cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess)
      fail("kernels", "{}: CUDA could not start it: {}", kernel_, cudaGetErrorString(code));
  }

 private:
  const char* kernel_;
  c10::cuda::CUDAGuard guard_;
  c10::cuda::CUDAStream stream_;
};

// Blocks for a loop over `numel` elements; each thread goes on in steps of grid_stride().
inline unsigned blocks_for(int64_t numel) {
  constexpr int64_t kMost = 1 << 20;
  return static_cast<unsigned>(std::clamp((numel + kThreads - 1) / kThreads, int64_t{1}, kMost));
}

__device__ inline int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline int64_t grid_stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Arithmetic is in fp64 for fp64 tensors and in fp32 for all others.
template <typename T>
using WideOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Conversion to nearest even; halves meet fp64 by way of fp32, as on the CPU.
template <typename Out, typename In>
__device__ Out cast(In value) {
  if constexpr (sizeof(Out) == 2 || sizeof(In) == 2)
    return static_cast<Out>(static_cast<float>(value));
  else
    return static_cast<Out>(value);
}

struct Sum {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};

// Keeps a NaN.
struct Max {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return b > a || b != b ? b : a;
  }
};

template <typename W, typename Combine>
__device__ W warp_reduce(W value, Combine combine) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// The reduction over all threads of the block, for each of them. Every thread takes part; `neutral`
// stands for warps that are not there.
template <typename W, typename Combine>
__device__ W block_reduce(W value, W neutral, Combine combine) {
  __shared__ W of_warps[kThreads / kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = warp_reduce(value, combine);
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < kThreads / kWarp ? of_warps[lane] : neutral, combine);
  __syncthreads();  // of_warps may be written again
  return value;
}

template <typename W>
__device__ W block_sum(W value) {
  return block_reduce(value, W{0}, Sum{});
}

}  // namespace tessera::kernels::cuda
