#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Fused kernels on contiguous tensors, of the CPU or, in a build with CUDA, of one GPU
// (cuda_kernels.h). Activations and weights are fp32, fp64, bf16 or fp16 (one dtype per call unless
// stated); sums, norms and exponentials are fp32 inside (fp64 for fp64 tensors). On the CPU each is
// vectorised with run-time dispatch (Google Highway) and single-threaded unless
// at::get_num_threads() > 1, in which case rows are split with at::parallel_for so that results do
// not depend on the thread count. On a GPU each runs on the current stream and the host does not
// wait, but for sum_squares, which returns a number.
namespace tessera::kernels {

// The dtype of sums over a tensor and of the numbers kept beside it: fp64 for fp64, else fp32.
inline at::ScalarType wide_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// RMSNorm (Zhang & Sennrich 2019): y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + eps).
// x, y [N, H]; weight [H] of x's dtype, or fp32 where x is bf16 or fp16; rstd [N] (fp32; fp64 for
// fp64) is written for the backward pass.
// With `residual_in` defined, h = x + residual_in is computed first, written to `residual_out`
// (which may alias x or residual_in), and normalised in place of x.
void rms_norm_forward(const at::Tensor& x, const at::Tensor& residual_in, const at::Tensor& weight,
                      double eps, const at::Tensor& y, const at::Tensor& rstd,
                      const at::Tensor& residual_out);

// Computes y of the forward pass again, bit for bit. x: what that pass normalised (its
// residual_out, if it had one); rstd: as it wrote it.
void rms_norm_apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                    const at::Tensor& y);

// dx [N, H] is written: gradient w.r.t. the normalised input, plus `dresidual` if defined (the
// gradient that reaches the same tensor through the residual path; may alias dx).
// dweight [H] (weight's dtype) is added into unless undefined; sums over rows are kept in fp32
// until the end.
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& rstd, const at::Tensor& dresidual, const at::Tensor& dx,
                       const at::Tensor& dweight);

// Rotary embedding (Su et al. 2021) in the half-split layout of Hugging Face's Llama: for a head
// [x1, x2] -> [x1 cos - x2 sin, x2 cos + x1 sin]. In place on the first `heads` heads of each row
// of x [N, row_stride] where head h occupies columns [h*D, (h+1)*D). cos, sin fp32 or bf16 [S,
// D/2]; row n has position n % S. `inverse` rotates back (the backward pass).
void rope_in_place(const at::Tensor& x, int64_t heads, int64_t head_dim, const at::Tensor& cos,
                   const at::Tensor& sin, bool inverse);

// SwiGLU (Shazeer 2020): out = silu(gate) * up. gate_up [N, 2F] holds gate in columns [0, F) and up
// in [F, 2F); out [N, F].
void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& out);
// dgate_up [N, 2F] is written; it may alias gate_up.
void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up, const at::Tensor& dgate_up);

// Vocab-parallel cross-entropy in three passes over logits [N, V_local], so that only [N] numbers
// cross ranks (Megatron-LM, Shoeybi et al. 2019). All [N] numbers are fp32 (fp64 for fp64 logits).
// 1. row_max [N] <- max over local columns.
void cross_entropy_max(const at::Tensor& logits, const at::Tensor& row_max);
// 2. With the global row_max: sum_exp [N] <- sum exp(l - max) over local columns;
//    target_logit [N] <- l[target] - max if vocab_start <= target < vocab_start + V_local, else 0.
void cross_entropy_sums(const at::Tensor& logits, const at::Tensor& row_max,
                        const at::Tensor& targets /* int64 [N] */, int64_t vocab_start,
                        const at::Tensor& sum_exp, const at::Tensor& target_logit);
// 3. With the global sum_exp: logits <- weight[n] * (softmax - onehot), in place. A row of weight 0
//    becomes exactly 0 whatever its logits; a gradient that a half cannot hold becomes infinity.
void cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& row_max,
                            const at::Tensor& sum_exp, const at::Tensor& targets,
                            int64_t vocab_start, const at::Tensor& weight);

// Sum of squares in fp64, in an order that depends on numel alone.
double sum_squares(const at::Tensor& x);
// sum += the sum of squares of x; sum fp64 [1] on x's device. The host does not wait.
void add_sum_squares(const at::Tensor& x, const at::Tensor& sum);

// dst <- src with conversion among fp32, fp64, bf16 and fp16 (round to nearest even); equal numel.
void convert(const at::Tensor& dst, const at::Tensor& src);

// dst += src, converted to dst's dtype first. dst fp32/fp64; src fp32, fp64, bf16, fp16.
void add_into(const at::Tensor& dst, const at::Tensor& src);

// out[i] <- sum over k of src[k][i] in the order of k, for `count` pointers to `numel` elements
// each of type `src_dtype`; halves add up in fp32 and are rounded once. out may be any one of the
// sources. out_dtype equals src_dtype, or is fp32 where src is bf16/fp16. Used by reductions of
// every backend.
void sum_ranks(void* out, at::ScalarType out_dtype, const void* const* src,
               at::ScalarType src_dtype, int count, int64_t numel);

// The same for tensors of any device: out [n] <- the sum of in's slices, in [count * n], in their
// order.
void sum_slices(const at::Tensor& out, const at::Tensor& in);

}  // namespace tessera::kernels
