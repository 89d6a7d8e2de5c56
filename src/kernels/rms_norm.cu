// RMSNorm on a GPU: one block a row; the weight's gradient in two passes of fixed order.
#include <ATen/ops/empty.h>

#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/cuda_launch.h"

namespace tessera::kernels::cuda {
namespace {

// T: of the rows, V: of the weight, W: of sums.
template <typename T, typename V, typename W>
__global__ void forward_row(const T* x, const T* residual, const V* weight, double eps, T* y,
                            W* rstd, T* sum, int64_t width) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * width;
  W squares = 0;
  for (int64_t i = start + threadIdx.x; i < start + width; i += kThreads) {
    W value = cast<W>(x[i]);
    if (residual != nullptr) {
      // What is normalised is the sum as it is stored, so that backward sees the same numbers.
      sum[i] = cast<T>(value + cast<W>(residual[i]));
      value = cast<W>(sum[i]);
    }
    squares += value * value;
  }
  const double mean = static_cast<double>(block_sum(squares)) / static_cast<double>(width);
  const W scale = static_cast<W>(1 / sqrt(mean + eps));
  if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
  const T* const in = residual != nullptr ? sum : x;  // each thread reads what it wrote itself
  for (int64_t i = start + threadIdx.x; i < start + width; i += kThreads)
    y[i] = cast<T>(cast<W>(in[i]) * scale * cast<W>(weight[i - start]));
}

template <typename T, typename V, typename W>
__global__ void apply_row(const T* x, const V* weight, const W* rstd, T* y, int64_t width) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * width;
  const W scale = rstd[blockIdx.x];
  for (int64_t i = start + threadIdx.x; i < start + width; i += kThreads)
    y[i] = cast<T>(cast<W>(x[i]) * scale * cast<W>(weight[i - start]));
}

// With n = x * rstd: dx = rstd * (w dy - n mean(w dy n)) + dresidual, which may be dx itself.
template <typename T, typename V, typename W>
__global__ void backward_row(const T* dy, const T* x, const V* weight, const W* rstd,
                             const T* dresidual, T* dx, int64_t width) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * width;
  W products = 0;
  for (int64_t i = start + threadIdx.x; i < start + width; i += kThreads)
    products += cast<W>(weight[i - start]) * cast<W>(dy[i]) * cast<W>(x[i]);
  const W scale = rstd[blockIdx.x];
  const W mean = block_sum(products) * scale / static_cast<W>(width);
  for (int64_t i = start + threadIdx.x; i < start + width; i += kThreads) {
    const W normalised = cast<W>(x[i]) * scale;
    W gradient = scale * (cast<W>(weight[i - start]) * cast<W>(dy[i]) - normalised * mean);
    if (dresidual != nullptr) gradient += cast<W>(dresidual[i]);
    dx[i] = cast<T>(gradient);
  }
}

// partial [blocks, width]: the sums of dy * n over the rows of each block; a thread has a column.
template <typename T, typename W>
__global__ void weight_partials(const T* dy, const T* x, const W* rstd, W* partial, int64_t rows,
                                int64_t width, int64_t rows_a_block) {
  const int64_t column = first_index();
  if (column >= width) return;
  const int64_t begin = blockIdx.y * rows_a_block;
  const int64_t end = begin + rows_a_block < rows ? begin + rows_a_block : rows;
  W sum = 0;
  for (int64_t row = begin; row < end; ++row)
    sum += cast<W>(dy[row * width + column]) * cast<W>(x[row * width + column]) * rstd[row];
  partial[blockIdx.y * width + column] = sum;
}

template <typename V, typename W>
__global__ void add_partials(const W* partial, int64_t blocks, V* dweight, int64_t width) {
  const int64_t column = first_index();
  if (column >= width) return;
  W sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += partial[b * width + column];
  dweight[column] = cast<V>(cast<W>(dweight[column]) + sum);
}

template <typename T>
const T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

}  // namespace

void rms_norm_forward(const at::Tensor& x, const at::Tensor& residual_in, const at::Tensor& weight,
                      double eps, const at::Tensor& y, const at::Tensor& rstd,
                      const at::Tensor& residual_out) {
  if (x.numel() == 0) return;
  constexpr const char* kName = "rms_norm_forward";
  const Launch launch(kName, x);
  with_weight_type(kName, x.scalar_type(), weight.scalar_type(), [&](auto of_rows, auto of_weight) {
    using T = typename decltype(of_rows)::type;
    using V = typename decltype(of_weight)::type;
    using W = WideOf<T>;
    T* const sum = residual_in.defined() ? residual_out.mutable_data_ptr<T>() : nullptr;
    forward_row<T, V, W><<<static_cast<unsigned>(x.size(0)), kThreads, 0, launch.stream()>>>(
        x.const_data_ptr<T>(), data_or_null<T>(residual_in), weight.const_data_ptr<V>(), eps,
        y.mutable_data_ptr<T>(), rstd.mutable_data_ptr<W>(), sum, x.size(1));
  });
  launch.check();
}

void rms_norm_apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                    const at::Tensor& y) {
  if (x.numel() == 0) return;
  constexpr const char* kName = "rms_norm_apply";
  const Launch launch(kName, x);
  with_weight_type(kName, x.scalar_type(), weight.scalar_type(), [&](auto of_rows, auto of_weight) {
    using T = typename decltype(of_rows)::type;
    using V = typename decltype(of_weight)::type;
    using W = WideOf<T>;
    apply_row<T, V, W><<<static_cast<unsigned>(x.size(0)), kThreads, 0, launch.stream()>>>(
        x.const_data_ptr<T>(), weight.const_data_ptr<V>(), rstd.const_data_ptr<W>(),
        y.mutable_data_ptr<T>(), x.size(1));
  });
  launch.check();
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& rstd, const at::Tensor& dresidual, const at::Tensor& dx,
                       const at::Tensor& dweight) {
  if (x.numel() == 0) return;
  constexpr const char* kName = "rms_norm_backward";
  constexpr int64_t kMostBlocks = 64;
  const int64_t rows = x.size(0), width = x.size(1);
  const int64_t rows_a_block = std::max<int64_t>(32, (rows + kMostBlocks - 1) / kMostBlocks);
  const int64_t blocks = (rows + rows_a_block - 1) / rows_a_block;
  const Launch launch(kName, x);
  with_weight_type(kName, x.scalar_type(), weight.scalar_type(), [&](auto of_rows, auto of_weight) {
    using T = typename decltype(of_rows)::type;
    using V = typename decltype(of_weight)::type;
    using W = WideOf<T>;
    if (dweight.defined()) {
      const auto partial = at::empty({blocks, width}, rstd.options());
      const dim3 grid(blocks_for(width), static_cast<unsigned>(blocks));
      weight_partials<T, W><<<grid, kThreads, 0, launch.stream()>>>(
          dy.const_data_ptr<T>(), x.const_data_ptr<T>(), rstd.const_data_ptr<W>(),
          partial.mutable_data_ptr<W>(), rows, width, rows_a_block);
      add_partials<V, W><<<blocks_for(width), kThreads, 0, launch.stream()>>>(
          partial.const_data_ptr<W>(), blocks, dweight.mutable_data_ptr<V>(), width);
    }
    backward_row<T, V, W><<<static_cast<unsigned>(rows), kThreads, 0, launch.stream()>>>(
        dy.const_data_ptr<T>(), x.const_data_ptr<T>(), weight.const_data_ptr<V>(),
        rstd.const_data_ptr<W>(), data_or_null<T>(dresidual), dx.mutable_data_ptr<T>(), width);
  });
  launch.check();
}

}  // namespace tessera::kernels::cuda
