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

// Few enough logits to be small beside the rest, enough of them that the weight's gradient, which
// is read and written once a chunk, does not take most of the time.
constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kChunkMultiple = 64;

int64_t largest_part(int64_t vocab, const TensorParallel& tp) {
  return (vocab + tp.size() - 1) / tp.size();
}

// Loss of some rows, in the dtype of their weights; with `gradient` their logits are overwritten by
// d loss / d logits.
at::Tensor rows_loss(const at::Tensor& logits, int64_t vocab_start, const at::Tensor& targets,
                     const at::Tensor& weights, bool gradient, const TensorParallel& tp) {
  const int64_t rows = logits.size(0);
  const auto wide = weights.options();
  at::Tensor row_max = at::empty({rows}, wide);
  kernels::cross_entropy_max(logits, row_max);
  Work maximum = tp.group().all_reduce(row_max, ReduceOp::kMax);
  tp.wait(maximum);
  at::Tensor sums = at::empty({2, rows}, wide);  // sum of exponentials, target logit
  kernels::cross_entropy_sums(logits, row_max, targets, vocab_start, sums[0], sums[1]);
  Work sum = tp.group().all_reduce(sums, ReduceOp::kSum);
  tp.wait(sum);
  if (gradient)
    kernels::cross_entropy_gradient(logits, row_max, sums[0], targets, vocab_start, weights);
  // A row of weight 0 adds exactly 0, even if its logits are not finite.
  const at::Tensor losses = sums[0].log() - sums[1];
  return at::where(weights == 0, at::zeros({}, wide), losses * weights).sum();
}

// The gradient of the weight over the chunks. Halves of several chunks add up in fp32 and are
// rounded once.
class WeightGradient {
 public:
  WeightGradient(const Weight& weight, bool several_chunks) : grad_(weight.grad) {
    if (grad_.defined() && several_chunks && at::isReducedFloatingType(grad_.scalar_type()))
      sum_ = grad_.to(at::kFloat);
  }

  void add(const at::Tensor& dlogits, const at::Tensor& h) {
    if (!grad_.defined()) return;
    if (sum_.defined()) {
      sum_.addmm_(dlogits.to(at::kFloat).t(), h.to(at::kFloat));
    } else {
      grad_.addmm_(dlogits.t(), h);
    }
  }

  void finish() {
    if (sum_.defined()) grad_.copy_(sum_);
  }

 private:
  at::Tensor grad_, sum_;
};

// The parts of a chunk that is tokens [begin, begin + count) of each rank's part.
struct Chunk {
  int64_t begin, count;

  at::Tensor own(const at::Tensor& h) const { return h.narrow(0, begin, count); }
  // Of a value of all tokens, in the order in which gather() gives their rows.
  at::Tensor of_all(const at::Tensor& x, const TensorParallel& tp) const {
    return x.view({tp.token_parts(), -1}).narrow(1, begin, count).reshape({-1}).contiguous();
  }
};

struct VocabParallelLoss : Function<VocabParallelLoss> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& h, const Weight& weight,
                            int64_t vocab_start, int64_t vocab, const at::Tensor& targets,
                            const at::Tensor& weights, const TensorParallel& tp, const Weight& bias,
                            bool gradient) {
    at::Tensor loss = at::zeros({}, weights.options());
    const at::Tensor dh = gradient ? at::empty_like(h) : at::Tensor();
    const int64_t parts = tp.token_parts();
    const int64_t rows =
        loss_chunk_tokens({vocab, h.size(1), h.scalar_type(), h.size(0) * parts}, tp) / parts;
    const at::Tensor buffer = at::empty({rows * parts, weight.value.size(0)}, h.options());
    WeightGradient grad(gradient ? weight : Weight(), rows < h.size(0));
    for (Chunk chunk{0, 0}; chunk.begin < h.size(0); chunk.begin += chunk.count) {
      chunk.count = std::min(rows, h.size(0) - chunk.begin);
      const at::Tensor part = tp.gather(chunk.own(h));
      at::Tensor logits = buffer.narrow(0, 0, part.size(0));
      at::mm_out(logits, part, weight.value.t());
      if (bias.value.defined()) logits.add_(bias.value);
      loss += rows_loss(logits, vocab_start, chunk.of_all(targets, tp), chunk.of_all(weights, tp),
                        gradient, tp);
      if (!gradient) continue;
      const at::Tensor own = chunk.own(dh);
      at::Tensor partial = tp.sequence_parallel() ? at::empty_like(part) : own;
      at::mm_out(partial, logits, weight.value);
      PendingTensor sum = tp.start_sum_into(own, partial);
      grad.add(logits, part);
      if (bias.grad.defined()) at::Tensor(bias.grad).add_(logits.sum(0));
      sum.get();
    }
    grad.finish();
    if (gradient) ctx->saved_data["dh"] = dh;
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor dh = ctx->saved_data["dh"].toTensor();
    ctx->saved_data.clear();
    return {dh.mul_(grads[0]), {}, {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

// The same on every rank: all start the same operations.
int64_t loss_chunk_tokens(const LossSize& size, const TensorParallel& tp) {
  const int64_t parts = tp.token_parts();
  int64_t tokens = tp.loss_chunk();
  if (tokens == 0) {
    const int64_t bytes =
        largest_part(size.vocab, tp) * static_cast<int64_t>(c10::elementSize(size.dtype));
    tokens = at::isReducedFloatingType(size.dtype)
                 ? size.tokens
                 : std::max(kChunkBytes / bytes / kChunkMultiple, int64_t{1}) * kChunkMultiple;
  }
  return std::min(std::max(tokens / parts, int64_t{1}) * parts, size.tokens);
}

int64_t loss_buffer_bytes(const LossSize& size, const TensorParallel& tp) {
  const int64_t rows = loss_chunk_tokens(size, tp);
  const auto element = static_cast<int64_t>(c10::elementSize(size.dtype));
  // A chunk of h, gathered, and its gradient before the sum.
  const int64_t hidden_copies = tp.sequence_parallel() ? 2 : 0;
  const int64_t vocab = largest_part(size.vocab, tp);
  int64_t bytes = rows * (vocab + hidden_copies * size.hidden) * element;
  if (size.trainable && at::isReducedFloatingType(size.dtype) && rows < size.tokens)
    bytes += (vocab * size.hidden + rows * (vocab + size.hidden)) * 4;
  return bytes;
}

at::Tensor vocab_parallel_loss(const at::Tensor& h, const Weight& weight, int64_t vocab_start,
                               int64_t vocab, const at::Tensor& targets, const at::Tensor& weights,
                               const TensorParallel& tp, const Weight& bias) {
  const bool gradient = at::GradMode::is_enabled() && h.requires_grad();
  const auto dtype = weight.value.scalar_type();
  return VocabParallelLoss::apply(h.to(dtype), Weight{weight.value.detach(), weight.grad},
                                  vocab_start, vocab, targets,
                                  weights.to(kernels::wide_dtype(dtype)), tp, bias, gradient);
}

}  // namespace tessera
