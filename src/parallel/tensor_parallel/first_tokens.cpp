#include "parallel/tensor_parallel/first_tokens.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Which of `samples` equally long samples start among this rank's `rows` tokens, and where.
struct Starts {
  Starts(int64_t rows_of_rank, int64_t samples, const TensorParallel& tp) : rows(rows_of_rank) {
    const int64_t tokens = rows * tp.token_parts();
    if (samples == 0 || tokens % samples != 0)
      fail("tensor parallelism", "{} tokens of {} samples; the samples must divide the tokens",
           tokens, samples);
    length = tokens / samples;
    const int64_t begin = tp.token_part() * rows;
    sample = (begin + length - 1) / length;
    count = (begin + rows + length - 1) / length - sample;
    row = sample * length - begin;
  }

  at::Tensor of(const at::Tensor& x) const { return x.slice(0, row, rows, length); }

  int64_t rows;    // tokens of this rank
  int64_t length;  // tokens of a sample
  int64_t sample;  // the first sample that starts here
  int64_t count;   // how many samples start here
  int64_t row;     // the token of this rank with which the first of them starts
};

struct FirstTokens : Function<FirstTokens> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Starts& starts,
                            int64_t samples, const TensorParallel& tp) {
    ctx->saved_data["rows"] = starts.rows;
    ctx->saved_data["length"] = starts.length;
    ctx->saved_data["sample"] = starts.sample;
    ctx->saved_data["count"] = starts.count;
    ctx->saved_data["row"] = starts.row;
    const at::Tensor firsts = at::zeros({samples, x.size(1)}, x.options());
    firsts.narrow(0, starts.sample, starts.count).copy_(starts.of(x));
    return tp.sequence_parallel() ? tp.with_all_tokens().sum(firsts) : firsts;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto& saved = ctx->saved_data;
    const at::Tensor& dy = grads[0];
    const int64_t rows = saved["rows"].toInt();
    const at::Tensor dx = at::zeros({rows, dy.size(1)}, dy.options());
    dx.slice(0, saved["row"].toInt(), rows, saved["length"].toInt())
        .copy_(dy.narrow(0, saved["sample"].toInt(), saved["count"].toInt()));
    return {dx, {}, {}, {}};
  }
};

}  // namespace

at::Tensor first_tokens(const at::Tensor& x, int64_t samples, const TensorParallel& tp) {
  return FirstTokens::apply(x, Starts(x.size(0), samples, tp), samples, tp);
}

}  // namespace tessera
