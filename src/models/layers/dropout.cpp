#include "models/layers/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "base/philox.h"
#include "kernels/dropout.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Dropout : Function<Dropout> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const DropoutPlace& place,
                            const at::Tensor& rows) {
    ctx->saved_data["p"] = place.p;
    ctx->saved_data["key"] = static_cast<int64_t>(place.key);
    ctx->saved_data["rows"] = rows;
    at::Tensor y = at::empty_like(x);
    kernels::dropout(x, rows, kernels::DropoutRate(place.p), place.key, y);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = at::empty_like(dy);
    kernels::dropout(dy, ctx->saved_data["rows"].toTensor(),
                     kernels::DropoutRate(ctx->saved_data["p"].toDouble()),
                     static_cast<uint64_t>(ctx->saved_data["key"].toInt()), dx);
    return {dx, {}, {}};
  }
};

}  // namespace

DropoutPlace::DropoutPlace(double rate, uint64_t seed, std::string_view name) : p(rate) {
  const auto words = Philox(seed).block(stream_of("dropout " + std::string(name)));
  key = words[0] | static_cast<uint64_t>(words[1]) << 32;
}

at::Tensor dropout(const at::Tensor& x, const DropoutPlace& place, const at::Tensor& rows) {
  if (place.p == 0 || !rows.defined()) return x;
  return Dropout::apply(x, place, rows);
}

}  // namespace tessera
