// LayerNorm, activations and attention of every kind against ATen's own operators and autograd.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/philox.h"
#include "models/layers/activation.h"
#include "models/layers/attention.h"
#include "models/layers/layer_norm.h"

namespace tessera {
namespace {

at::Tensor random(at::IntArrayRef shape, uint64_t stream, at::ScalarType dtype = at::kFloat) {
  const at::Tensor x = at::empty(shape, at::kFloat);
  Philox(5).normals(stream, 0, 1.0, x.data_ptr<float>(), x.numel());
  return x.to(dtype);
}

at::Tensor leaf(const at::Tensor& x) {
  return x.detach().clone().set_requires_grad(true);
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor b64 = b.to(at::kDouble);
  return ((a.to(at::kDouble) - b64).norm() / b64.norm()).item<double>();
}

double tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble  ? 1e-13
         : dtype == at::kFloat ? 2e-6
         : dtype == at::kHalf  ? 3e-3
                               : 2e-2;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

TEST(LayerNorm, EqualsTheFormulaInFp64) {
  for (const auto dtype : kTypes) {
    SCOPED_TRACE(at::toString(dtype));
    const at::Tensor x0 = random({10, 24}, 1, dtype), delta0 = random({10, 24}, 2, dtype);
    const at::Tensor w0 = random({24}, 3, dtype), b0 = random({24}, 4, dtype);
    const at::Tensor dy = random({10, 24}, 5, dtype), dres = random({10, 24}, 6, dtype);
    const at::Tensor x = leaf(x0), delta = leaf(delta0);
    const Weight w{w0, at::ones_like(w0)}, b{b0, at::ones_like(b0)};
    const NormResult out = add_layer_norm(x, delta, w, b, 1e-5);
    torch::autograd::backward({out.residual, out.y}, {dres, dy});

    const auto wide = [](const at::Tensor& t) { return leaf(t.to(at::kDouble)); };
    // What is normalised is the sum as it is stored.
    const at::Tensor sum = wide((x0 + delta0).detach()), w64 = wide(w0), b64 = wide(b0);
    const at::Tensor centred = sum - sum.mean(1, true);
    const at::Tensor y = centred / (centred.square().mean(1, true) + 1e-5).sqrt() * w64 + b64;
    torch::autograd::backward({sum * 1.0, y}, {dres.to(at::kDouble), dy.to(at::kDouble)});
    EXPECT_LE(distance(out.y, y), tolerance(dtype));
    EXPECT_LE(distance(x.grad(), sum.grad()), tolerance(dtype));
    EXPECT_TRUE(at::equal(x.grad(), delta.grad()));
    // Gradients are added to what is there.
    EXPECT_LE(distance(w.grad, w64.grad() + 1), tolerance(dtype));
    EXPECT_LE(distance(b.grad, b64.grad() + 1), tolerance(dtype));
    EXPECT_TRUE(at::equal(out.make_y(), out.y));
  }
}

// One of the two is kept in fp32 beside halves (precision.keep_fp32: ["*bias"]).
TEST(LayerNorm, TakesWeightAndBiasOfTwoTypes) {
  const at::Tensor x = leaf(random({6, 8}, 1, at::kBFloat16)),
                   dy = random({6, 8}, 2, at::kBFloat16);
  const at::Tensor w = random({8}, 3, at::kBFloat16), b = random({8}, 4);
  const auto run = [&](const Weight& weight, const Weight& bias) {
    at::Tensor(x).mutable_grad() = at::Tensor();
    const NormResult out = layer_norm(x, weight, bias, 1e-5);
    out.y.backward(dy);
    EXPECT_TRUE(at::equal(out.make_y(), out.y));
    return std::pair(out.y.detach(), x.grad());
  };
  const Weight mixed_w{w, at::zeros_like(w)}, mixed_b{b, at::zeros_like(b)};
  const Weight wide_w{w.to(at::kFloat), at::zeros({8})}, wide_b{b, at::zeros({8})};
  const auto [y, dx] = run(mixed_w, mixed_b);
  const auto [wide_y, wide_dx] = run(wide_w, wide_b);
  EXPECT_TRUE(at::equal(y, wide_y));
  EXPECT_TRUE(at::equal(dx, wide_dx));
  EXPECT_TRUE(at::equal(mixed_b.grad, wide_b.grad));
  EXPECT_TRUE(at::equal(mixed_w.grad, wide_w.grad.to(at::kBFloat16)));
}

// The output alone (a norm after the sum), and frozen weights.
TEST(LayerNorm, TakesWhatIsThere) {
  const at::Tensor x = leaf(random({6, 8}, 1)), dy = random({6, 8}, 2);
  const Weight w{random({8}, 3), {}}, b{random({8}, 4), {}};
  layer_norm(x, w, b, 1e-5).y.backward(dy);
  const at::Tensor reference = leaf(x);
  at::layer_norm(reference, {8}, w.value, b.value, 1e-5).backward(dy);
  EXPECT_LE(distance(x.grad(), reference.grad()), 1e-6);
}

TEST(Activation, EqualsItsFormula) {
  for (const auto dtype : kTypes) {
    SCOPED_TRACE(at::toString(dtype));
    const at::Tensor x0 = random({5, 7}, 1, dtype), dy = random({5, 7}, 2, dtype);
    for (const auto activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
      const at::Tensor x = leaf(x0), x64 = leaf(x0.to(at::kDouble));
      const at::Tensor y = activate(x, activation);
      y.backward(dy);
      const double root = std::sqrt(2.0), tanh_scale = std::sqrt(2.0 / 3.14159265358979323846);
      const at::Tensor expected =
          activation == Activation::kGelu ? 0.5 * x64 * (1 + at::erf(x64 / root))
          : activation == Activation::kGeluTanh
              ? 0.5 * x64 * (1 + at::tanh(tanh_scale * (x64 + 0.044715 * x64.pow(3))))
              : at::where(x64 > 0, x64, at::zeros_like(x64));
      expected.backward(dy.to(at::kDouble));
      EXPECT_LE(distance(y, expected), tolerance(dtype));
      EXPECT_LE(distance(x.grad(), x64.grad()), tolerance(dtype));
      EXPECT_TRUE(at::equal(activation_recipe(x, activation)(), y));
    }
  }
}

// [B*S, heads * D] -> [B, heads, S, D].
at::Tensor split(const at::Tensor& rows, const AttentionShape& s) {
  return rows.reshape({s.batch, -1, s.heads, s.head_dim}).transpose(1, 2);
}

// softmax(q k^T / sqrt(D) + mask) v step by step; the probabilities times `factors`.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionShape& s, const AttentionOptions& mask,
                           const at::Tensor& factors = at::ones({1}, at::kDouble)) {
  at::Tensor scores = at::matmul(split(q, s), split(k, s).transpose(2, 3)) /
                      std::sqrt(static_cast<double>(s.head_dim));
  const int64_t queries = scores.size(2), keys = scores.size(3);
  at::Tensor hidden = at::zeros({s.batch, 1, queries, keys}, at::kBool);
  if (mask.causal) hidden = hidden | at::ones({queries, keys}, at::kBool).tril().logical_not();
  if (mask.key_lengths.defined())
    hidden = hidden | (at::arange(keys) >= mask.key_lengths.view({-1, 1})).view({-1, 1, 1, keys});
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor out = at::matmul(scores.softmax(3) * factors, split(v, s));
  return out.transpose(1, 2).reshape(q.sizes());
}

class MaskedAttention : public testing::TestWithParam<at::ScalarType> {};

TEST_P(MaskedAttention, SelfEqualsStepByStep) {
  const auto dtype = GetParam();
  const AttentionShape shape{3, 2, 2, 16};
  const at::Tensor lengths = at::tensor({5, 1, 9}, at::kLong);
  for (const AttentionOptions& mask : {AttentionOptions{}, AttentionOptions{.causal = true},
                                       AttentionOptions{.key_lengths = lengths}}) {
    const at::Tensor qkv0 = random({27, 96}, 1, dtype), dy = random({27, 32}, 2, dtype);
    const at::Tensor qkv = leaf(qkv0), wide = leaf(qkv0.to(at::kDouble));
    const at::Tensor out = self_attention(qkv, shape, mask);
    out.backward(dy);
    const auto parts = wide.chunk(3, 1);
    const at::Tensor expected = plain_attention(parts[0], parts[1], parts[2], shape, mask);
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(distance(out, expected), tolerance(dtype));
    EXPECT_LE(distance(qkv.grad(), wide.grad()), tolerance(dtype));
  }
}

TEST_P(MaskedAttention, CrossEqualsStepByStep) {
  const auto dtype = GetParam();
  const AttentionShape shape{2, 4, 4, 8};
  const at::Tensor lengths = at::tensor({7, 3}, at::kLong);
  for (const at::Tensor& key_lengths : {at::Tensor(), lengths}) {
    const AttentionOptions mask{.key_lengths = key_lengths};
    const at::Tensor q0 = random({10, 32}, 1, dtype), kv0 = random({14, 64}, 2, dtype);
    const at::Tensor dy = random({10, 32}, 3, dtype);
    const at::Tensor q = leaf(q0), kv = leaf(kv0);
    const at::Tensor out = cross_attention(q, kv, shape, mask);
    out.backward(dy);
    const at::Tensor q64 = leaf(q0.to(at::kDouble)), kv64 = leaf(kv0.to(at::kDouble));
    const auto parts = kv64.chunk(2, 1);
    const at::Tensor expected = plain_attention(q64, parts[0], parts[1], shape, mask);
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(distance(out, expected), tolerance(dtype));
    EXPECT_LE(distance(q.grad(), q64.grad()), tolerance(dtype));
    EXPECT_LE(distance(kv.grad(), kv64.grad()), tolerance(dtype));
    if (!key_lengths.defined()) continue;
    // Padding has no gradient at all.
    EXPECT_EQ(kv.grad().view({2, 7, 64})[1].narrow(0, 3, 4).abs().max().item<double>(), 0.0);
  }
}

// [B, heads, S, S'] of what a layer multiplies its probabilities with: scores of zero make all that
// a query reads equal, and values of unit rows bring head_dim keys at a time to light.
template <typename Attention>
at::Tensor factors_of(const AttentionShape& s, int64_t queries, int64_t keys, Attention attention) {
  const at::Tensor result = at::zeros({s.batch, s.heads, queries, keys}, at::kDouble);
  const at::Tensor zeros = at::zeros({s.batch * keys, s.heads * s.head_dim}, at::kDouble);
  for (int64_t first = 0; first < keys; first += s.head_dim) {
    const int64_t n = std::min(s.head_dim, keys - first);
    const at::Tensor v = at::zeros({s.batch, keys, s.heads, s.head_dim}, at::kDouble);
    v.narrow(1, first, n).copy_(at::eye(n, s.head_dim, at::kDouble).view({1, n, 1, s.head_dim}));
    const at::Tensor y = attention(zeros, v.view(zeros.sizes()));
    result.narrow(3, first, n).copy_(split(y, s).narrow(3, 0, n));
  }
  return result;
}

const AttentionDropout kDropped{DropoutPlace(0.3, 1, "a"), 2, at::tensor({int64_t{8}, int64_t{5}})};

AttentionOptions dropping(AttentionOptions options, const AttentionDropout& dropout = kDropped) {
  options.dropout = dropout;
  return options;
}

TEST_P(MaskedAttention, SelfWithDropoutIsTheFormulaWithTheMask) {
  const auto dtype = GetParam();
  const AttentionShape shape{2, 2, 2, 16};
  const int64_t length = 150;  // several groups of a mask
  const at::Tensor lengths = at::tensor({150, 67}, at::kLong);
  const at::Tensor reads = at::arange(1, length + 1, at::kDouble).view({1, 1, -1, 1});
  const std::pair<AttentionOptions, at::Tensor> cases[] = {
      {{}, at::full({1}, static_cast<double>(length), at::kDouble)},
      {{.causal = true}, reads},
      {{.key_lengths = lengths}, lengths.to(at::kDouble).view({-1, 1, 1, 1})}};
  for (const auto& [mask, keys_read] : cases) {
    const at::Tensor factors =
        keys_read *
        factors_of(shape, length, length, [&](const at::Tensor& zeros, const at::Tensor& v) {
          return self_attention(at::cat({zeros, zeros, v}, 1), shape, dropping(mask));
        });
    const double dropped = 1 - (factors > 0).sum().item<double>() /
                                   keys_read.expand({2, 2, length, 1}).sum().item<double>();
    EXPECT_NEAR(dropped, 0.3, 0.02);
    const at::Tensor qkv0 = random({2 * length, 96}, 1, dtype),
                     dy = random({2 * length, 32}, 2, dtype);
    const at::Tensor qkv = leaf(qkv0), wide = leaf(qkv0.to(at::kDouble));
    const at::Tensor out = self_attention(qkv, shape, dropping(mask));
    out.backward(dy);
    const auto parts = wide.chunk(3, 1);
    const at::Tensor expected = plain_attention(parts[0], parts[1], parts[2], shape, mask, factors);
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(distance(out, expected), tolerance(dtype));
    EXPECT_LE(distance(qkv.grad(), wide.grad()), tolerance(dtype));
  }
}

TEST_P(MaskedAttention, CrossWithDropoutIsTheFormulaWithTheMask) {
  const auto dtype = GetParam();
  const AttentionShape shape{2, 4, 4, 8};
  const at::Tensor lengths = at::tensor({7, 3}, at::kLong);
  const AttentionOptions mask{.key_lengths = lengths};
  const at::Tensor factors =
      lengths.view({-1, 1, 1, 1}) *
      factors_of(shape, 5, 7, [&](const at::Tensor& zeros, const at::Tensor& v) {
        return cross_attention(zeros.narrow(0, 0, 10), at::cat({zeros, v}, 1), shape,
                               dropping(mask));
      });
  EXPECT_FALSE(at::equal(factors[0][0], factors[0][1]));
  const at::Tensor q0 = random({10, 32}, 1, dtype), kv0 = random({14, 64}, 2, dtype);
  const at::Tensor dy = random({10, 32}, 3, dtype);
  const at::Tensor q = leaf(q0), kv = leaf(kv0);
  const at::Tensor out = cross_attention(q, kv, shape, dropping(mask));
  out.backward(dy);
  const at::Tensor q64 = leaf(q0.to(at::kDouble)), kv64 = leaf(kv0.to(at::kDouble));
  const auto parts = kv64.chunk(2, 1);
  const at::Tensor expected = plain_attention(q64, parts[0], parts[1], shape, mask, factors);
  expected.backward(dy.to(at::kDouble));
  EXPECT_LE(distance(out, expected), tolerance(dtype));
  EXPECT_LE(distance(q.grad(), q64.grad()), tolerance(dtype));
  EXPECT_LE(distance(kv.grad(), kv64.grad()), tolerance(dtype));
  EXPECT_EQ(kv.grad().view({2, 7, 64})[1].narrow(0, 3, 4).abs().max().item<double>(), 0.0);
}

// Heads are counted over all ranks, and evaluation drops nothing.
TEST(MaskedAttentionDropout, FollowsTheGlobalHeadAndTheRowsOfTheRun) {
  const AttentionShape all{2, 4, 4, 8}, half{2, 2, 2, 8};
  const at::Tensor qkv = random({18, 96}, 1);
  const auto heads = [&](int64_t first) {  // of q, of k and of v
    return qkv.view({18, 3, 4, 8}).narrow(2, first, 2).reshape({18, 48});
  };
  AttentionDropout dropped = kDropped;
  dropped.first_head = 0;
  const at::Tensor whole = self_attention(qkv, all, dropping({}, dropped));
  EXPECT_TRUE(
      at::equal(self_attention(heads(0), half, dropping({}, dropped)), whole.narrow(1, 0, 16)));
  dropped.first_head = 2;
  EXPECT_TRUE(
      at::equal(self_attention(heads(2), half, dropping({}, dropped)), whole.narrow(1, 16, 16)));
  dropped.rows = at::Tensor();
  EXPECT_TRUE(
      at::equal(self_attention(qkv, all, dropping({}, dropped)), self_attention(qkv, all, {})));
  EXPECT_FALSE(at::equal(whole, self_attention(qkv, all, {})));
}

INSTANTIATE_TEST_SUITE_P(Types, MaskedAttention, testing::ValuesIn(kTypes),
                         [](const auto& test) { return std::string(at::toString(test.param)); });

TEST(MaskedAttentionErrors, NameTheSizes) {
  const auto message = [](auto run) {
    try {
      run();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const AttentionShape shape{2, 2, 2, 8};
  EXPECT_NE(message([&] {
              self_attention(at::ones({4, 32}), shape, {});
            }).find("rows [4, 32]; 2 samples of 6 heads of 8"),
            std::string::npos);
  const AttentionOptions both{.causal = true, .key_lengths = at::ones({2}, at::kLong)};
  EXPECT_NE(message([&] {
              self_attention(at::ones({4, 48}), shape, both);
            }).find("causal and key_lengths together"),
            std::string::npos);
  EXPECT_NE(message([&] {
              self_attention(at::ones({4, 48}), shape, dropping(both));
            }).find("causal and key_lengths together"),
            std::string::npos);
  EXPECT_NE(message([&] {
              self_attention(at::ones({4, 48}), shape, {.window = 2});
            }).find("window 2 without causal"),
            std::string::npos);
  EXPECT_NE(message([&] {
              cross_attention(at::ones({4, 16}), at::ones({4, 32}), shape, {.causal = true});
            }).find("causal with keys of another sequence"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
