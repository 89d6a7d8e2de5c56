#include "models/vocab_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "models/scores.h"
#include "parallel/tensor_parallel/vocab_argmax.h"
#include "parallel/tensor_parallel/vocab_cross_entropy.h"

namespace tessera {

at::Tensor vocab_head_loss(const at::Tensor& y, const Parameter& head, const MicroBatch& batch,
                           const TensorParallel& tp, const Weight& bias) {
  return vocab_parallel_loss(y, weight_of(head), head.box.offset[0], head.spec.shape[0],
                             batch.targets.reshape({-1}), batch.weights.reshape({-1}), tp, bias);
}

TensorList vocab_head_scores(const at::Tensor& y, const Parameter& head, const MicroBatch& batch,
                             const TensorParallel& tp, const Weight& bias) {
  const at::Tensor loss = vocab_head_loss(y, head, batch, tp, bias);
  if (at::GradMode::is_enabled()) return {loss};
  return scores(
      loss,
      vocab_parallel_argmax(tp.gather(y), head.value, bias.value, head.box.offset[0], tp.group()),
      batch);
}

int64_t vocab_head_bytes(const Parameter& head, int64_t tokens, const TensorParallel& tp) {
  return loss_buffer_bytes({head.spec.shape[0], head.spec.shape[1], head.value.scalar_type(),
                            tokens, head.grad.defined()},
                           tp);
}

}  // namespace tessera
