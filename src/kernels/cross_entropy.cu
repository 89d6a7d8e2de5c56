// Vocab-parallel cross-entropy on a GPU: the three passes of kernels.h, one block a row.
#include <cmath>

#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/cuda_launch.h"

namespace tessera::kernels::cuda {
namespace {

template <typename T, typename W>
__global__ void max_of_row(const T* logits, W* row_max, int64_t width) {
  constexpr W kLowest = -INFINITY;
  const T* const row = logits + static_cast<int64_t>(blockIdx.x) * width;
  W most = kLowest;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) most = Max{}(most, cast<W>(row[i]));
  most = block_reduce(most, kLowest, Max{});
  if (threadIdx.x == 0) row_max[blockIdx.x] = most;
}

template <typename T, typename W>
__global__ void sums_of_row(const T* logits, const W* row_max, const int64_t* targets,
                            int64_t vocab_start, W* sum_exp, W* target_logit, int64_t width) {
  const T* const row = logits + static_cast<int64_t>(blockIdx.x) * width;
  const W most = row_max[blockIdx.x];
  W sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += exp(cast<W>(row[i]) - most);
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  sum_exp[blockIdx.x] = sum;
  const int64_t target = targets[blockIdx.x] - vocab_start;
  target_logit[blockIdx.x] = target >= 0 && target < width ? cast<W>(row[target]) - most : W{0};
}

template <typename T, typename W>
__global__ void gradient_of_row(T* logits, const W* row_max, const W* sum_exp,
                                const int64_t* targets, int64_t vocab_start, const W* weight,
                                int64_t width) {
  T* const row = logits + static_cast<int64_t>(blockIdx.x) * width;
  const W w = weight[blockIdx.x], most = row_max[blockIdx.x];
  const W scale = W{1} / sum_exp[blockIdx.x];
  const int64_t target = targets[blockIdx.x] - vocab_start;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    const W probability = exp(cast<W>(row[i]) - most) * scale;
    // Not 0 * x: a row of weight 0 may hold anything, also infinities.
    row[i] = cast<T>(w == 0 ? W{0} : w * (i == target ? probability - W{1} : probability));
  }
}

}  // namespace

void cross_entropy_max(const at::Tensor& logits, const at::Tensor& row_max) {
  if (logits.size(0) == 0) return;
  const Launch launch("cross_entropy_max", logits);
  with_any_type("cross_entropy_max", logits.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    using W = WideOf<T>;
    max_of_row<T, W><<<static_cast<unsigned>(logits.size(0)), kThreads, 0, launch.stream()>>>(
        logits.const_data_ptr<T>(), row_max.mutable_data_ptr<W>(), logits.size(1));
  });
  launch.check();
}

void cross_entropy_sums(const at::Tensor& logits, const at::Tensor& row_max,
                        const at::Tensor& targets, int64_t vocab_start, const at::Tensor& sum_exp,
                        const at::Tensor& target_logit) {
  if (logits.size(0) == 0) return;
  const Launch launch("cross_entropy_sums", logits);
  with_any_type("cross_entropy_sums", logits.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    using W = WideOf<T>;
    sums_of_row<T, W><<<static_cast<unsigned>(logits.size(0)), kThreads, 0, launch.stream()>>>(
        logits.const_data_ptr<T>(), row_max.const_data_ptr<W>(), targets.const_data_ptr<int64_t>(),
        vocab_start, sum_exp.mutable_data_ptr<W>(), target_logit.mutable_data_ptr<W>(),
        logits.size(1));
  });
  launch.check();
}

void cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& row_max,
                            const at::Tensor& sum_exp, const at::Tensor& targets,
                            int64_t vocab_start, const at::Tensor& weight) {
  if (logits.size(0) == 0) return;
  const Launch launch("cross_entropy_gradient", logits);
  with_any_type("cross_entropy_gradient", logits.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    using W = WideOf<T>;
    gradient_of_row<T, W><<<static_cast<unsigned>(logits.size(0)), kThreads, 0, launch.stream()>>>(
        logits.mutable_data_ptr<T>(), row_max.const_data_ptr<W>(), sum_exp.const_data_ptr<W>(),
        targets.const_data_ptr<int64_t>(), vocab_start, weight.const_data_ptr<W>(), logits.size(1));
  });
  launch.check();
}

}  // namespace tessera::kernels::cuda
