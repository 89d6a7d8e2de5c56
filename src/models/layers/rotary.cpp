#include "models/layers/rotary.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <numbers>

#include "kernels/kernels.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Whether nobody else can see what is written into the tensor.
bool held_once(const at::Tensor& x) {
  return x.use_count() == 1 && x.storage().use_count() == 1 && x.is_contiguous();
}

struct Rotate : Function<Rotate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t heads,
                            int64_t head_dim, const RopeTable& rope) {
    kernels::rope_in_place(x, heads, head_dim, rope.cos, rope.sin, /*inverse=*/false);
    ctx->mark_dirty({x});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["head_dim"] = head_dim;
    ctx->saved_data["cos"] = rope.cos;
    ctx->saved_data["sin"] = rope.sin;
    return x;
  }

  // A gradient that autograd hands over for good is turned where it lies, without a copy.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto& saved = ctx->saved_data;
    const at::Tensor dx =
        held_once(grads[0]) ? grads[0] : grads[0].clone(at::MemoryFormat::Contiguous);
    kernels::rope_in_place(dx, saved["heads"].toInt(), saved["head_dim"].toInt(),
                           saved["cos"].toTensor(), saved["sin"].toTensor(), /*inverse=*/true);
    return {dx, {}, {}, {}};
  }
};

// transformers' arithmetic in fp32, so that tables agree to the last bits.
float stretched(float frequency, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  if (scaling.type == RopeScalingType::kNone) return frequency;
  if (scaling.type == RopeScalingType::kLinear) return frequency / factor;
  const auto original = static_cast<float>(scaling.original_max_position_embeddings);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto high = static_cast<float>(scaling.high_freq_factor);
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float kept = (original / wavelength - low) / (high - low);
  return (1 - kept) * frequency / factor + kept * frequency;
}

}  // namespace

// Made in single precision like the reference model's tables, so that exported models give its
// logits.
RopeTable::RopeTable(int64_t seq_len, int64_t head_dim, double theta, at::ScalarType dtype,
                     const RopeScaling& scaling, at::Device device) {
  const int64_t half = head_dim / 2;
  cos = at::empty({seq_len, half}, at::kFloat);
  sin = at::empty({seq_len, half}, at::kFloat);
  auto* c = cos.mutable_data_ptr<float>();
  auto* s = sin.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float frequency =
        stretched(1.0F / static_cast<float>(std::pow(theta, exponent)), scaling);
    for (int64_t p = 0; p < seq_len; ++p) {
      const float angle = static_cast<float>(p) * frequency;
      c[p * half + i] = std::cos(angle);
      s[p * half + i] = std::sin(angle);
    }
  }
  cos = cos.to(device, dtype);
  sin = sin.to(device, dtype);
}

at::Tensor rotate(const at::Tensor& x, int64_t heads, int64_t head_dim, const RopeTable& rope) {
  return Rotate::apply(x, heads, head_dim, rope);
}

}  // namespace tessera
