#include "kernel_test.h"
#include "kernels/kernels.h"

namespace tessera::kernels {
namespace {

using at::indexing::Slice;

// Rows and widths around the sizes of vectors and of blocks of rows.
constexpr std::pair<int64_t, int64_t> kShapes[] = {{1, 1},   {3, 17},  {5, 64},
                                                   {2, 257}, {70, 96}, {130, 33}};

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

class RowKernels : public KernelTest {};

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * (x.square().mean(-1, true) + eps).rsqrt() * weight;
}

TEST_P(RowKernels, RmsNormForward) {
  constexpr double kEps = 1e-5;
  for (const auto dtype : kActivationTypes) {
    for (const auto& [rows, width] : kShapes) {
      const auto x = randn({rows, width}, dtype);
      const auto weight = randn({width}, dtype);
      const auto y = guarded({rows, width}, dtype);
      const auto rstd = guarded({rows}, wide(dtype));
      rms_norm_forward(x, {}, weight, kEps, y, rstd, {});
      const auto x64 = x.to(at::kDouble);
      expect_close(y, rms_norm(x64, weight.to(at::kDouble), kEps), "y");
      expect_close(rstd, (x64.square().mean(-1) + kEps).rsqrt(), "rstd");
    }
  }
}

TEST_P(RowKernels, RmsNormForwardAddsResidualFirst) {
  constexpr double kEps = 1e-5;
  for (const auto dtype : kActivationTypes) {
    for (const auto& [rows, width] : kShapes) {
      const auto x = randn({rows, width}, dtype);
      const auto residual = randn({rows, width}, dtype);
      const auto weight = randn({width}, dtype);
      const at::Tensor sum = x + residual;  // rounded to dtype: what is normalised
      const auto expected = rms_norm(sum.to(at::kDouble), weight.to(at::kDouble), kEps);
      for (int alias = 0; alias < 3; ++alias) {
        const auto a = guarded_copy(x), b = guarded_copy(residual);
        const auto out = alias == 0 ? guarded(x.sizes(), dtype) : alias == 1 ? a : b;
        const auto y = guarded({rows, width}, dtype);
        const auto rstd = guarded({rows}, wide(dtype));
        rms_norm_forward(a, b, weight, kEps, y, rstd, out);
        EXPECT_TRUE(at::equal(out, sum)) << "residual_out, alias " << alias;
        expect_close(y, expected, "y");
      }
    }
  }
}

TEST_P(RowKernels, RmsNormOfZeroRowIsZero) {
  const auto x = guarded_copy(at::zeros({2, 33}));
  const auto weight = guarded_copy(at::ones({33}));
  const auto y = guarded({2, 33}, at::kFloat), rstd = guarded({2}, at::kFloat);
  rms_norm_forward(x, {}, weight, 1e-6, y, rstd, {});
  EXPECT_TRUE(at::equal(y, at::zeros({2, 33})));
  expect_close(rstd, at::full({2}, 1e3), "rstd");
  const auto dx = guarded({2, 33}, at::kFloat), dweight = guarded_copy(at::zeros({33}));
  rms_norm_backward(weight.expand({2, 33}).contiguous(), x, weight, rstd, {}, dx, dweight);
  expect_close(dx, at::full({2, 33}, 1e3), "dx");
  EXPECT_TRUE(at::equal(dweight, at::zeros({33})));
}

TEST_P(RowKernels, RmsNormBackwardIsAutograds) {
  constexpr double kEps = 1e-5;
  for (const auto dtype : kActivationTypes) {
    for (const auto& [rows, width] : kShapes) {
      const auto x = randn({rows, width}, dtype);
      const auto weight = randn({width}, dtype);
      const auto dy = randn({rows, width}, dtype);
      const auto dresidual = randn({rows, width}, dtype);
      const auto y = guarded({rows, width}, dtype);
      const auto rstd = guarded({rows}, wide(dtype));
      rms_norm_forward(x, {}, weight, kEps, y, rstd, {});

      const auto x64 = x.to(at::kDouble, false, true).requires_grad_();
      const auto w64 = weight.to(at::kDouble, false, true).requires_grad_();
      rms_norm(x64, w64, kEps).backward(dy.to(at::kDouble));
      // In a row of one, w dy and its mean along x cancel.
      const double terms =
          (rstd.to(at::kDouble).unsqueeze(1) * w64.detach() * dy).abs().max().item<double>();
      for (int alias = 0; alias < 3; ++alias) {  // none; dresidual apart; dresidual is dx
        const auto residual = alias == 0 ? at::Tensor() : guarded_copy(dresidual);
        const auto dx = alias == 2 ? residual : guarded({rows, width}, dtype);
        const auto dweight = randn({width}, dtype);
        const at::Tensor expected_dweight = dweight.to(at::kDouble) + w64.grad();
        rms_norm_backward(dy, x, weight, rstd, residual, dx, dweight);
        const at::Tensor expected_dx =
            alias == 0 ? x64.grad() : x64.grad() + dresidual.to(at::kDouble);
        expect_close(dx, expected_dx, "dx", terms);
        expect_close(dweight, expected_dweight, "dweight");
      }
    }
  }
}

// A weight that stays fp32 beside halves, with an fp32 gradient.
TEST_P(RowKernels, RmsNormTakesFp32WeightsBesideHalves) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto x = randn({5, 70}, dtype), dy = randn({5, 70}, dtype);
    const auto weight = randn({70}, at::kFloat), dweight = guarded_copy(at::zeros({70}));
    const auto y = guarded({5, 70}, dtype), dx = guarded({5, 70}, dtype);
    const auto rstd = guarded({5}, at::kFloat);
    rms_norm_forward(x, {}, weight, 1e-5, y, rstd, {});
    rms_norm_backward(dy, x, weight, rstd, {}, dx, dweight);
    const auto x64 = x.to(at::kDouble).requires_grad_();
    const auto w64 = weight.to(at::kDouble).requires_grad_();
    const auto expected = rms_norm(x64, w64, 1e-5);
    expected.backward(dy.to(at::kDouble));
    expect_close(y, expected.detach(), "y");
    expect_close(dx, x64.grad(), "dx");
    expect_close(dweight, w64.grad(), "dweight in fp32");
  }
}

TEST_P(RowKernels, RmsNormOfAFrozenWeightHasNoGradient) {
  const auto x = randn({5, 70}, at::kFloat), dy = randn({5, 70}, at::kFloat);
  const auto weight = randn({70}, at::kFloat), dweight = guarded_copy(at::zeros({70}));
  const auto y = guarded({5, 70}, at::kFloat), rstd = guarded({5}, at::kFloat);
  const auto dx = guarded({5, 70}, at::kFloat), frozen = guarded({5, 70}, at::kFloat);
  rms_norm_forward(x, {}, weight, 1e-5, y, rstd, {});
  rms_norm_backward(dy, x, weight, rstd, {}, dx, dweight);
  rms_norm_backward(dy, x, weight, rstd, {}, frozen, {});
  EXPECT_TRUE(at::equal(frozen, dx));
}

TEST_P(RowKernels, RmsNormAgainIsTheSameBits) {
  for (const auto dtype : kActivationTypes) {
    for (const auto& [rows, width] : kShapes) {
      const auto x = randn({rows, width}, dtype), weight = randn({width}, dtype);
      const auto y = guarded(x.sizes(), dtype), again = guarded(x.sizes(), dtype);
      const auto rstd = guarded({rows}, wide(dtype));
      rms_norm_forward(x, {}, weight, 1e-5, y, rstd, {});
      rms_norm_apply(x, weight, rstd, again);
      EXPECT_TRUE(at::equal(again, y)) << dtype;
    }
  }
}

TEST_P(RowKernels, RmsNormDoesNotDependOnThreads) {
  const auto x = randn({2100, 40}, at::kBFloat16), dy = randn({2100, 40}, at::kBFloat16);
  const auto weight = randn({40}, at::kBFloat16);
  std::vector<at::Tensor> results;
  const int threads = at::get_num_threads();
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    const auto y = guarded(x.sizes(), at::kBFloat16), dx = guarded(x.sizes(), at::kBFloat16);
    const auto rstd = guarded({2100}, at::kFloat);
    const auto dweight = guarded_copy(at::zeros({40}, at::kBFloat16));
    rms_norm_forward(x, {}, weight, 1e-5, y, rstd, {});
    rms_norm_backward(dy, x, weight, rstd, {}, dx, dweight);
    for (const auto& tensor : {y, rstd, dx, dweight}) results.push_back(tensor);
  }
  at::set_num_threads(threads);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(results[i], results[i + 4])) << i;
}

TEST_P(RowKernels, RopeRotatesTheFirstHeads) {
  constexpr int64_t kPositions = 5, kRows = 10, kHeads = 3;
  for (const auto dtype : kActivationTypes) {
    for (const int64_t head_dim : {2, 6, 32, 64, 80}) {
      const int64_t half = head_dim / 2, stride = (kHeads + 2) * head_dim;
      const auto angles = randn({kPositions, half}, at::kFloat, 3);
      const auto cos = guarded_copy(angles.cos()), sin = guarded_copy(angles.sin());
      const auto x = randn({kRows, stride}, dtype);
      const auto before = x.clone();
      const auto heads = before.to(at::kDouble)
                             .index({Slice(), Slice(0, kHeads * head_dim)})
                             .reshape({kRows, kHeads, head_dim});
      const auto x1 = heads.narrow(2, 0, half), x2 = heads.narrow(2, half, half);
      const auto c = cos.to(at::kDouble).repeat({2, 1}).unsqueeze(1);
      const auto s = sin.to(at::kDouble).repeat({2, 1}).unsqueeze(1);
      const auto expected = at::cat({x1 * c - x2 * s, x2 * c + x1 * s}, 2).flatten(1);

      rope_in_place(x, kHeads, head_dim, cos, sin, false);
      expect_close(x.narrow(1, 0, kHeads * head_dim), expected, "rotated");
      EXPECT_TRUE(at::equal(x.narrow(1, kHeads * head_dim, 2 * head_dim),
                            before.narrow(1, kHeads * head_dim, 2 * head_dim)));

      // The transpose of the rotation takes a gradient back.
      const auto gradient = guarded_copy(before);
      rope_in_place(gradient, kHeads, head_dim, cos, sin, true);
      const auto back = at::cat({x1 * c + x2 * s, x2 * c - x1 * s}, 2).flatten(1);
      expect_close(gradient.narrow(1, 0, kHeads * head_dim), back, "rotated back");
    }
  }
}

TEST_P(RowKernels, RopeTakesBf16Tables) {
  const auto angles = randn({4, 8}, at::kFloat, 3);
  const auto cos = angles.cos().to(at::kBFloat16), sin = angles.sin().to(at::kBFloat16);
  for (const auto dtype : kActivationTypes) {
    const auto x = randn({8, 32}, dtype), same = guarded_copy(x);
    rope_in_place(x, 2, 16, cos, sin, false);
    rope_in_place(same, 2, 16, cos.to(at::kFloat), sin.to(at::kFloat), false);
    EXPECT_TRUE(at::equal(x, same)) << dtype;
  }
  const auto x = randn({8, 32}, at::kFloat);
  EXPECT_MESSAGE(rope_in_place(x, 2, 16, cos, sin.to(at::kFloat), false), "sin is Float; it must");
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const auto parts = gate_up.chunk(2, 1);
  return at::silu(parts[0]) * parts[1];
}

TEST_P(RowKernels, SwigluIsAtensAndAutograds) {
  for (const auto dtype : kActivationTypes) {
    for (const auto& [rows, width] : kShapes) {
      const auto gate_up = randn({rows, 2 * width}, dtype, 3);
      const auto out = guarded({rows, width}, dtype);
      swiglu_forward(gate_up, out);
      const auto in64 = gate_up.to(at::kDouble, false, true).requires_grad_();
      const auto expected = swiglu(in64);
      expect_close(out, expected.detach(), "out");

      const auto dout = randn({rows, width}, dtype);
      expected.backward(dout.to(at::kDouble));
      const auto gradient = guarded({rows, 2 * width}, dtype);
      swiglu_backward(dout, gate_up, gradient);
      expect_close(gradient, in64.grad(), "dgate_up");
      swiglu_backward(dout, gate_up, gate_up);
      EXPECT_TRUE(at::equal(gate_up, gradient)) << "in place";
    }
  }
}

TEST_P(RowKernels, SwigluOfExtremeGates) {
  const auto gates = at::tensor({1e4f, -1e4f, 88.0f, -88.0f, 89.0f, -89.0f, 0.0f, 1e-40f, -1e-40f,
                                 1e30f, -1e30f, 3e38f, -3e38f, 1.0f, -1.0f, 20.0f, -20.0f});
  const auto gate_up = guarded_copy(at::cat({gates, at::ones_like(gates)}).unsqueeze(0));
  const auto out = guarded({1, 17}, at::kFloat), gradient = guarded({1, 34}, at::kFloat);
  swiglu_forward(gate_up, out);
  swiglu_backward(guarded_copy(at::ones({1, 17})), gate_up, gradient);
  const auto in64 = gate_up.to(at::kDouble, false, true).requires_grad_();
  const auto expected = swiglu(in64);
  expected.sum().backward();
  // Element by element: the mean of these would hide every small one. Below 1e-35 nothing counts.
  EXPECT_TRUE(at::allclose(out.to(at::kDouble), expected.detach(), 1e-6, 1e-35)) << out;
  EXPECT_TRUE(at::allclose(gradient.to(at::kDouble), in64.grad(), 1e-5, 1e-7)) << gradient;
}

TEST_P(RowKernels, RowKernelsRefuseBadArguments) {
  const auto x = randn({4, 6}, at::kFloat), w = randn({6}, at::kFloat),
             y = randn({4, 6}, at::kFloat);
  const auto rstd = randn({4}, at::kFloat);
  EXPECT_MESSAGE(rms_norm_forward(x, {}, randn({5}, at::kFloat), 1e-5, y, rstd, {}),
                 "rms_norm_forward: weight has shape [5]; it must be [6]");
  EXPECT_MESSAGE(rms_norm_forward(x, x, w, 1e-5, y, rstd, {}), "residual_out is undefined");
  EXPECT_MESSAGE(rms_norm_backward(y, x, w, randn({4}, at::kDouble), {}, y, w),
                 "rms_norm_backward: rstd is Double; it must be Float");
  EXPECT_MESSAGE(swiglu_forward(x, randn({4, 2}, at::kFloat)), "gate_up has shape [4, 6]");
  EXPECT_MESSAGE(swiglu_forward(x, randn({4, 3}, at::kBFloat16)), "out is BFloat16");
  EXPECT_MESSAGE(swiglu_backward(randn({4, 3}, at::kFloat), x, y.t()), "dgate_up");
  const auto table = randn({3, 2}, at::kFloat);
  EXPECT_MESSAGE(rope_in_place(x, 2, 4, table, table, false),
                 "2 heads of 4 need 8 columns; x has 6");
  EXPECT_MESSAGE(rope_in_place(x, 2, 3, table, table, false), "head_dim is 3");
  EXPECT_MESSAGE(rope_in_place(x, 1, 6, table, table, false), "cos has shape [3, 2]");
}

INSTANTIATE_FOR_TARGETS(RowKernels);

}  // namespace
}  // namespace tessera::kernels
