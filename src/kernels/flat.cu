// Kernels over flat tensors on a GPU: conversion, accumulation, sums.
#include <ATen/ops/empty.h>

#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/cuda_launch.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements whose squares one block sums

template <typename Out, typename In>
__global__ void convert_elements(Out* dst, const In* src, int64_t numel) {
  for (int64_t i = first_index(); i < numel; i += grid_stride()) dst[i] = cast<Out>(src[i]);
}

template <typename Out, typename In>
__global__ void add_elements(Out* dst, const In* src, int64_t numel) {
  for (int64_t i = first_index(); i < numel; i += grid_stride()) dst[i] += cast<Out>(src[i]);
}

template <typename T>
__global__ void sum_chunk(const T* x, int64_t numel, double* sums) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk;
  const int64_t end = begin + kChunk < numel ? begin + kChunk : numel;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const double value = cast<double>(x[i]);
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block.
__global__ void sum_chunks(const double* sums, int64_t count, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = sum;
}

template <typename Out, typename In>
__global__ void sum_slice_elements(Out* out, const In* in, int64_t slices, int64_t numel) {
  for (int64_t i = first_index(); i < numel; i += grid_stride()) {
    auto sum = cast<WideOf<In>>(in[i]);
    for (int64_t k = 1; k < slices; ++k) sum += cast<WideOf<In>>(in[k * numel + i]);
    out[i] = cast<Out>(sum);
  }
}

}  // namespace

void convert(const at::Tensor& dst, const at::Tensor& src) {
  const int64_t numel = dst.numel();
  if (numel == 0 || dst.const_data_ptr() == src.const_data_ptr()) return;
  const Launch launch("convert", dst);
  with_any_type("convert", dst.scalar_type(), [&](auto to) {
    with_any_type("convert", src.scalar_type(), [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      convert_elements<<<blocks_for(numel), kThreads, 0, launch.stream()>>>(
          dst.mutable_data_ptr<Out>(), src.const_data_ptr<In>(), numel);
    });
  });
  launch.check();
}

void add_into(const at::Tensor& dst, const at::Tensor& src) {
  const int64_t numel = dst.numel();
  if (numel == 0) return;
  const Launch launch("add_into", dst);
  with_wide_type("add_into", dst.scalar_type(), [&](auto to) {
    with_any_type("add_into", src.scalar_type(), [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      add_elements<<<blocks_for(numel), kThreads, 0, launch.stream()>>>(
          dst.mutable_data_ptr<Out>(), src.const_data_ptr<In>(), numel);
    });
  });
  launch.check();
}

at::Tensor sum_squares(const at::Tensor& x) {
  const int64_t numel = x.numel();
  const int64_t chunks = (numel + kChunk - 1) / kChunk;
  const Launch launch("sum_squares", x);
  const auto sums = at::empty({chunks + 1}, x.options().dtype(at::kDouble));
  double* const total = sums.mutable_data_ptr<double>();
  if (chunks > 0) {
    with_any_type("sum_squares", x.scalar_type(), [&](auto type) {
      using T = typename decltype(type)::type;
      sum_chunk<<<static_cast<unsigned>(chunks), kThreads, 0, launch.stream()>>>(
          x.const_data_ptr<T>(), numel, total + 1);
    });
  }
  sum_chunks<<<1, kThreads, 0, launch.stream()>>>(total + 1, chunks, total);
  launch.check();
  return sums.narrow(0, 0, 1);
}

void sum_slices(const at::Tensor& out, const at::Tensor& in) {
  const int64_t numel = out.numel();
  if (numel == 0) return;
  const int64_t slices = in.numel() / numel;
  const Launch launch("sum_slices", out);
  with_any_type("sum_slices", in.scalar_type(), [&](auto type) {
    using In = typename decltype(type)::type;
    const In* const from = in.const_data_ptr<In>();
    if (out.scalar_type() == in.scalar_type())
      sum_slice_elements<<<blocks_for(numel), kThreads, 0, launch.stream()>>>(
          out.mutable_data_ptr<In>(), from, slices, numel);
    else
      sum_slice_elements<<<blocks_for(numel), kThreads, 0, launch.stream()>>>(
          out.mutable_data_ptr<float>(), from, slices, numel);
  });
  launch.check();
}

}  // namespace tessera::kernels::cuda
