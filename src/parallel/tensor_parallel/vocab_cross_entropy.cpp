#include "parallel/tensor_parallel/vocab_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/kernels.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Rows of logits that exist at once: few enough to stay small, many enough that the weight's
// gradient (read and written once per chunk) does not rule. Halves take all rows, so that the
// weight's gradient is rounded once.
constexpr int64_t kChunkBytes = int64_t{64} << 20;

int64_t chunk_rows(const at::Tensor& h, int64_t vocab) {
  if (h.element_size() == 2) return h.size(0);
  const int64_t rows = kChunkBytes / (vocab * static_cast<int64_t>(h.element_size()));
  return std::max<int64_t>(std::min(h.size(0), rows / 64 * 64), std::min<int64_t>(h.size(0), 64));
}

// Loss of some rows, in the dtype of their weights; with `gradient` their logits are overwritten by
// d loss / d logits.
at::Tensor rows_loss(const at::Tensor& logits, int64_t vocab_start, const at::Tensor& targets,
                     const at::Tensor& weights, bool gradient, Communicator& tp) {
  const int64_t rows = logits.size(0);
  const auto wide = weights.options();
  at::Tensor row_max = at::empty({rows}, wide);
  kernels::cross_entropy_max(logits, row_max);
  tp.all_reduce(row_max, ReduceOp::kMax).wait();
  at::Tensor sums = at::empty({2, rows}, wide);  // sum of exponentials, target logit
  kernels::cross_entropy_sums(logits, row_max, targets, vocab_start, sums[0], sums[1]);
  tp.all_reduce(sums, ReduceOp::kSum).wait();
  if (gradient)
    kernels::cross_entropy_gradient(logits, row_max, sums[0], targets, vocab_start, weights);
  // A row of weight 0 adds exactly 0, even if its logits are not finite.
  const at::Tensor losses = sums[0].log() - sums[1];
  return at::where(weights == 0, at::zeros({}, wide), losses * weights).sum();
}

struct VocabParallelLoss : Function<VocabParallelLoss> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& h, const Weight& weight,
                            int64_t vocab_start, const at::Tensor& targets,
                            const at::Tensor& weights, Communicator* tp, bool gradient) {
    at::Tensor grad = weight.grad;
    at::Tensor loss = at::zeros({}, weights.options());
    at::Tensor dh = gradient ? at::empty_like(h) : at::Tensor();
    const int64_t rows = chunk_rows(h, weight.value.size(0));
    at::Tensor buffer = at::empty({std::min(rows, h.size(0)), weight.value.size(0)}, h.options());
    for (int64_t begin = 0; begin < h.size(0); begin += rows) {
      const int64_t n = std::min(rows, h.size(0) - begin);
      const at::Tensor part = h.narrow(0, begin, n);
      at::Tensor logits = buffer.narrow(0, 0, n);
      at::mm_out(logits, part, weight.value.t());
      loss += rows_loss(logits, vocab_start, targets.narrow(0, begin, n),
                        weights.narrow(0, begin, n), gradient, *tp);
      if (!gradient) continue;
      at::Tensor dpart = dh.narrow(0, begin, n);
      at::mm_out(dpart, logits, weight.value);
      Work sum = tp->all_reduce(dpart, ReduceOp::kSum);
      if (grad.defined()) grad.addmm_(logits.t(), part);
      sum.wait();
    }
    if (gradient) ctx->saved_data["dh"] = dh;
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor dh = ctx->saved_data["dh"].toTensor();
    ctx->saved_data.clear();
    return {dh.mul_(grads[0]), {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor vocab_parallel_loss(const at::Tensor& h, const Weight& weight, int64_t vocab_start,
                               const at::Tensor& targets, const at::Tensor& weights,
                               Communicator& tp) {
  const bool gradient = at::GradMode::is_enabled() && h.requires_grad();
  const auto dtype = weight.value.scalar_type();
  return VocabParallelLoss::apply(h.to(dtype), Weight{weight.value.detach(), weight.grad},
                                  vocab_start, targets, weights.to(kernels::wide_dtype(dtype)), &tp,
                                  gradient);
}

}  // namespace tessera
