#include "kernels/dropout.h"

#include <cmath>

#include "base/philox.h"
#include "kernel_test.h"

namespace tessera::kernels {
namespace {

// The definition: element j of group g belongs to word j / 16 of block 16 g + j % 16.
bool keeps(uint64_t key, int64_t row, int64_t position, int64_t index, uint32_t threshold) {
  const int64_t group = index / 64, j = index % 64;
  const auto lo = static_cast<uint64_t>(16 * group + j % 16) | static_cast<uint64_t>(position)
                                                                   << 32;
  return Philox(key).block(lo, static_cast<uint64_t>(row))[static_cast<size_t>(j / 16)] >=
         threshold;
}

// The factors of positions `first` ... of a row, [positions, width].
at::Tensor factors(uint64_t key, int64_t row, int64_t first, int64_t positions, int64_t width,
                   const DropoutRate& rate) {
  const auto f = at::zeros({positions, width}, at::kDouble);
  for (int64_t s = 0; s < positions; ++s)
    for (int64_t i = 0; i < width; ++i)
      if (keeps(key, row, first + s, i, rate.threshold)) f[s][i] = rate.scale;
  return f;
}

class DropoutKernels : public KernelTest {};

TEST_P(DropoutKernels, MasksAreTheDefinition) {
  const DropoutRate rate(0.3);
  const auto rows = at::tensor({int64_t{7}, int64_t{1} << 40});
  for (const auto dtype : kActivationTypes) {
    for (const int64_t width : {1, 17, 64, 200}) {
      const auto x = randn({6, width}, dtype), y = guarded({6, width}, dtype);
      dropout(x, {rows, 3}, rate, 99, y);
      const auto f = at::cat(
          {factors(99, 7, 0, 3, width, rate), factors(99, int64_t{1} << 40, 0, 3, width, rate)});
      expect_close(y, x.to(at::kDouble) * f, "y");
      EXPECT_TRUE(at::equal(y == 0, f == 0)) << dtype;
      dropout(x, {rows, 3}, rate, 99, x);
      EXPECT_TRUE(at::equal(x, y)) << "in place";
    }
  }
}

// Masks never change: a run that was started once goes on with them.
TEST_P(DropoutKernels, MasksAreFixedForEver) {
  const auto y = guarded({2, 12}, at::kFloat);
  dropout(guarded_copy(at::ones({2, 12})), {at::tensor({int64_t{3}}), 2}, DropoutRate(0.5), 42, y);
  std::string bits;
  for (int64_t i = 0; i < 24; ++i) bits += y.view({-1})[i].item<float>() > 0 ? '1' : '0';
  EXPECT_EQ(bits, "010000101110100011011011");
}

TEST_P(DropoutKernels, DependsOnTheCoordinatesAlone) {
  const DropoutRate rate(0.5);
  const auto ones = guarded_copy(at::ones({8, 96}));
  const auto draw = [&](std::vector<int64_t> rows, uint64_t key) {
    const auto y = guarded({8, 96}, at::kFloat);
    dropout(ones, {at::tensor(rows), 4}, rate, key, y);
    return y;
  };
  const auto both = draw({5, 9}, 1), swapped = draw({9, 5}, 1);
  EXPECT_TRUE(at::equal(both.narrow(0, 0, 4), swapped.narrow(0, 4, 4)));
  EXPECT_TRUE(at::equal(both.narrow(0, 4, 4), swapped.narrow(0, 0, 4)));
  EXPECT_FALSE(at::equal(both, draw({5, 9}, 2)));
  EXPECT_FALSE(at::equal(both.narrow(0, 0, 4), both.narrow(0, 4, 4)));
}

TEST_P(DropoutKernels, PartsHaveTheWholesMask) {
  const DropoutRate rate(0.5);
  const auto x = randn({12, 70}, at::kFloat), whole = guarded({12, 70}, at::kFloat);
  const DropoutTokens tokens{at::tensor({int64_t{5}, int64_t{9}}), 6};
  dropout(x, tokens, rate, 1, whole);
  for (const int64_t first : {1, 4, 9}) {
    const auto part = guarded({3, 70}, at::kFloat);
    dropout(guarded_copy(x.narrow(0, first, 3)), {tokens.rows, 6, first}, rate, 1, part);
    EXPECT_TRUE(at::equal(part, whole.narrow(0, first, 3))) << first;
  }
  for (const auto& [first, width] :
       {std::pair<int64_t, int64_t>{0, 70}, {0, 3}, {3, 61}, {35, 35}, {64, 6}, {69, 1}}) {
    const auto part = guarded({12, width}, at::kFloat);
    dropout(guarded_copy(x.narrow(1, first, width)), {tokens.rows, 6, 0, first}, rate, 1, part);
    EXPECT_TRUE(at::equal(part, whole.narrow(1, first, width))) << "columns from " << first;
  }
}

TEST_P(DropoutKernels, KeepsTheRateAndTheMean) {
  constexpr int64_t kRows = 1000, kWidth = 640;
  const auto y = guarded({kRows, kWidth}, at::kFloat);
  const auto ones = guarded_copy(at::ones({kRows, kWidth}));
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    dropout(ones, {at::tensor({int64_t{0}}), kRows}, DropoutRate(p), 5, y);
    const double kept = (y > 0).to(at::kDouble).mean().item<double>();
    const double sigma = std::sqrt(p * (1 - p) / (kRows * kWidth));
    EXPECT_NEAR(kept, 1 - p, 4 * sigma) << p;
    EXPECT_NEAR(y.to(at::kDouble).mean().item<double>(), 1.0, 4 * sigma / (1 - p) + 1e-7) << p;
    // No column and no row stands out: counts of 1000 and 640 draws within 5 sigma.
    for (const int64_t dim : {0, 1}) {
      const auto n = static_cast<double>(y.size(dim));
      const auto rates = (y > 0).to(at::kDouble).mean(dim) - (1 - p);
      EXPECT_LE(rates.abs().max().item<double>(), 5 * std::sqrt(p * (1 - p) / n)) << p;
    }
  }
}

TEST_P(DropoutKernels, SoftmaxIsTheFormulaAndItsGradientAutograds) {
  const std::vector<uint64_t> head_keys = {11, 12};
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double p : {0.0, 0.3}) {
      const int64_t queries = 5, first = 66,
                    keys = 80;  // if causal, the last keys are read by nobody
      const DropoutRate rate(p);
      for (const bool causal : {true, false}) {
        const AttentionRows rows{queries, first, causal, 0.5, 3, head_keys.data()};
        const auto raw = randn({10, keys}, dtype, 3), dp = randn({10, keys}, dtype);
        const auto scores = guarded_copy(raw);
        const auto logsumexp = guarded({10}, dtype);
        attention_softmax(scores, rows, rate, logsumexp);

        const auto leaf = raw.to(at::kDouble, false, true).requires_grad_();
        const auto hidden = at::ones({queries, keys}, at::kBool)
                                .tril(causal ? first : keys)
                                .logical_not()
                                .repeat({2, 1});
        const auto scaled = (leaf * 0.5).masked_fill(hidden, -INFINITY);
        const auto f = at::cat({factors(11, 3, first, queries, keys, rate),
                                factors(12, 3, first, queries, keys, rate)});
        const auto expected = at::softmax(scaled, 1) * f;
        expect_close(scores, expected.detach(), "probabilities");
        expect_close(logsumexp, scaled.logsumexp(1).detach(), "logsumexp");
        EXPECT_EQ(scores.masked_select(hidden).abs().sum().item<double>(), 0.0);

        expected.backward(dp.to(at::kDouble));
        const auto again = guarded_copy(raw), grad = guarded_copy(dp);
        const auto delta = guarded_copy((expected.detach() * dp.to(at::kDouble)).sum(1).to(dtype));
        attention_softmax_backward(again, grad, rows, rate, logsumexp, delta);
        expect_close(again, expected.detach(), "probabilities again", 1e-3);
        expect_close(grad, leaf.grad(), "d scores", 1e-2);
      }
    }
  }
}

TEST_P(DropoutKernels, RefuseBadArguments) {
  for (const double p : {1.0, -0.1, static_cast<double>(NAN)})
    EXPECT_MESSAGE(DropoutRate{p}, "it must be at least 0 and below 1");
  const auto x = randn({4, 6}, at::kFloat);
  const DropoutRate rate(0.1);
  EXPECT_MESSAGE(dropout(x, {at::zeros({3}, at::kLong), 2, 3}, rate, 0, x),
                 "tokens 3 to 7 of 3 rows of 2 positions; they must lie in them");
  EXPECT_MESSAGE(dropout(x, {at::zeros({2}), 2}, rate, 0, x), "rows is Float; it must be Long");
  EXPECT_MESSAGE(dropout(x, {at::zeros({2}, at::kLong), 2, 0, -1}, rate, 0, x), "first_column -1");
  const uint64_t key = 0;
  EXPECT_MESSAGE(
      attention_softmax(x, AttentionRows{4, 3, true, 1.0, 0, &key}, rate, randn({4}, at::kFloat)),
      "attention_softmax: queries 3 to 7 in 4 rows of 6 keys");
}

INSTANTIATE_FOR_TARGETS(DropoutKernels);

}  // namespace
}  // namespace tessera::kernels
