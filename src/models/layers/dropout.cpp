#include "models/layers/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/dropout.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Dropout : Function<Dropout> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const DropoutPlace& place,
                            const kernels::DropoutTokens& tokens) {
    ctx->saved_data["p"] = place.p;
    ctx->saved_data["key"] = static_cast<int64_t>(place.key);
    ctx->saved_data["rows"] = tokens.rows;
    ctx->saved_data["positions"] = tokens.positions;
    ctx->saved_data["first"] = tokens.first;
    ctx->saved_data["first_column"] = tokens.first_column;
    at::Tensor y = at::empty_like(x);
    kernels::dropout(x, tokens, kernels::DropoutRate(place.p), place.key, y);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = at::empty_like(dy);
    auto& saved = ctx->saved_data;
    const kernels::DropoutTokens tokens{saved["rows"].toTensor(), saved["positions"].toInt(),
                                        saved["first"].toInt(), saved["first_column"].toInt()};
    kernels::dropout(dy, tokens, kernels::DropoutRate(saved["p"].toDouble()),
                     static_cast<uint64_t>(saved["key"].toInt()), dx);
    return {dx, {}, {}};
  }
};

int64_t positions(int64_t tokens, const at::Tensor& rows) {
  const int64_t samples = rows.numel();
  if (samples == 0 || tokens % samples != 0)
    fail("dropout", "{} tokens of {} samples; the samples must divide the tokens", tokens, samples);
  return tokens / samples;
}

}  // namespace

DropoutPlace::DropoutPlace(double rate, uint64_t seed, std::string_view name) : p(rate) {
  const auto words = Philox(seed).block(stream_of("dropout " + std::string(name)));
  key = words[0] | static_cast<uint64_t>(words[1]) << 32;
}

at::Tensor dropout(const at::Tensor& x, const DropoutPlace& place, const at::Tensor& rows,
                   const TensorParallel& tp) {
  if (!place.drops(rows)) return x;
  const int64_t length = positions(x.size(0) * tp.token_parts(), rows);
  return Dropout::apply(x, place,
                        kernels::DropoutTokens{rows, length, tp.token_part() * x.size(0)});
}

at::Tensor column_dropout(const at::Tensor& x, const DropoutPlace& place, const at::Tensor& rows,
                          const TensorParallel& tp) {
  if (!place.drops(rows)) return x;
  return Dropout::apply(
      x, place, kernels::DropoutTokens{rows, positions(x.size(0), rows), 0, tp.rank() * x.size(1)});
}

}  // namespace tessera
