#include <limits>

#include "kernel_test.h"
#include "kernels/kernels.h"

namespace tessera::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// What the ranks of a vocab-parallel head compute together, on the shards of one logits tensor.
struct Sharded {
  at::Tensor loss;      // [N]
  at::Tensor gradient;  // [N, V]
};

class CrossEntropy : public KernelTest {
 protected:
  // `cuts`: where shards start.
  Sharded run(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& weight,
              std::vector<int64_t> cuts) {
    const int64_t rows = logits.size(0);
    const auto numbers = wide(logits.scalar_type());
    cuts.push_back(logits.size(1));
    std::vector<at::Tensor> shards;
    auto row_max = at::full({rows}, -kInf, numbers);
    for (size_t k = 0; k + 1 < cuts.size(); ++k) {
      shards.push_back(guarded_copy(logits.slice(1, cuts[k], cuts[k + 1])));
      const auto local = guarded({rows}, numbers);
      cross_entropy_max(shards[k], local);
      row_max = at::maximum(row_max, local);
    }
    const auto sum_exp = at::zeros({rows}, numbers), target_logit = at::zeros({rows}, numbers);
    for (size_t k = 0; k < shards.size(); ++k) {
      const auto sum = guarded({rows}, numbers), target = guarded({rows}, numbers);
      cross_entropy_sums(shards[k], row_max, targets, cuts[k], sum, target);
      sum_exp.add_(sum);
      target_logit.add_(target);
    }
    for (size_t k = 0; k < shards.size(); ++k) {
      cross_entropy_gradient(shards[k], row_max, sum_exp, targets, cuts[k], weight.to(numbers));
    }
    return {sum_exp.log() - target_logit, at::cat(shards, 1)};
  }

  at::Tensor targets(int64_t rows, int64_t vocab) {
    return at::randint(0, vocab, {rows}, generator_, at::TensorOptions(at::kLong));
  }
};

void expect_reference(const Sharded& result, const at::Tensor& logits, const at::Tensor& targets,
                      const at::Tensor& weight, const std::string& what) {
  const auto l64 = logits.to(at::kDouble, false, true).requires_grad_();
  const auto loss = at::cross_entropy_loss(l64, targets, {}, at::Reduction::None);
  (loss * weight.to(at::kDouble)).sum().backward();
  expect_close(result.loss, loss.detach(), what + " loss");
  // softmax - 1 may cancel.
  expect_close(result.gradient, l64.grad(), what + " gradient", weight.max().item<double>());
}

TEST_P(CrossEntropy, IsAtensOnAnyShards) {
  for (const auto dtype : kActivationTypes) {
    for (const int64_t vocab : {2, 3, 17, 64, 1003}) {
      for (const bool split : {false, true}) {
        const auto logits = randn({7, vocab}, dtype, 3);
        const auto target = targets(7, vocab);
        const auto weight = at::rand({7}, generator_) + 0.1;
        const auto cuts = split ? std::vector<int64_t>{0, vocab / 3 + 1} : std::vector<int64_t>{0};
        const auto result = run(logits, target, weight, cuts);
        expect_reference(result, logits, target, weight, std::string(c10::toString(dtype)));
      }
    }
  }
}

TEST_P(CrossEntropy, OfOneColumnIsZero) {
  const auto result = run(randn({3, 1}, at::kFloat), at::zeros({3}, at::kLong), at::ones({3}), {0});
  EXPECT_TRUE(at::equal(result.loss, at::zeros({3})));
  EXPECT_TRUE(at::equal(result.gradient, at::zeros({3, 1})));
}

TEST_P(CrossEntropy, TakesLargeLogits) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto logits = guarded_copy(randn({5, 40}, at::kFloat, 1e4).to(dtype));
    const auto target = logits.argmax(1);
    const auto easy = run(logits, target, at::ones({5}), {0, 20});
    expect_reference(easy, logits, target, at::ones({5}), "the largest");
    const auto other = at::remainder(target + 1, 40);
    const auto hard = run(logits, other, at::ones({5}), {0, 20});
    expect_reference(hard, logits, other, at::ones({5}), "another");
  }
}

TEST_P(CrossEntropy, TakesMinusInfinity) {
  const auto logits = randn({4, 50}, at::kFloat);
  logits.narrow(1, 0, 25).fill_(-kInf);  // all of the first shard
  const auto target = at::tensor({30, 25, 49, 40}, at::kLong);
  const auto result = run(logits, target, at::ones({4}), {0, 25});
  EXPECT_TRUE(at::isfinite(result.loss).all().item<bool>());
  EXPECT_TRUE(at::equal(result.gradient.narrow(1, 0, 25), at::zeros({4, 25})));
  const auto rest = logits.narrow(1, 25, 25).contiguous();
  const auto whole = run(rest, target - 25, at::ones({4}), {0});
  EXPECT_TRUE(at::allclose(result.gradient.narrow(1, 25, 25), whole.gradient));

  // Nothing but -inf: no probability anywhere, and no NaN from inf - inf.
  const auto empty = guarded_copy(at::full({1, 33}, -kInf));
  const auto none = run(empty, at::full({1}, 40, at::kLong), at::ones({1}), {0});
  EXPECT_EQ(none.loss.item<float>(), -kInf);
  EXPECT_TRUE(at::equal(none.gradient, at::zeros({1, 33})));
}

TEST_P(CrossEntropy, WeightZeroGivesExactZeros) {
  for (const auto dtype : kActivationTypes) {
    const auto logits = randn({4, 50}, dtype);
    logits[1].fill_(NAN);
    logits[2].fill_(kInf);
    logits[3].fill_(-kInf);
    const auto weight = at::tensor({1.0f, 0.0f, 0.0f, 0.0f});
    const auto result = run(logits, targets(4, 50), weight, {0, 20});
    EXPECT_TRUE(at::equal(result.gradient.narrow(0, 1, 3), at::zeros({3, 50}, dtype)));
    EXPECT_TRUE(at::isfinite(result.gradient[0]).all().item<bool>());
  }
}

// A loss scale travels in the weights: powers of two change no digit, and what does not fit in fp16
// is infinite.
TEST_P(CrossEntropy, ScalesWithTheWeights) {
  const auto logits = randn({6, 50}, at::kHalf), target = targets(6, 50);
  const auto weight = at::full({6}, 1.0 / 64);
  const auto once = run(logits, target, weight, {0, 20});
  const auto scaled = run(logits, target, weight * 65536, {0, 20});
  const auto normal = once.gradient.abs() >= 6.2e-5;  // below, fp16 has fewer digits
  EXPECT_TRUE(at::equal((once.gradient.to(at::kFloat) * 65536).masked_select(normal),
                        scaled.gradient.to(at::kFloat).masked_select(normal)));
  const auto overflow = run(logits, target, weight * 65536 * 128, {0, 20});
  EXPECT_EQ(overflow.gradient.isinf().sum(1).min().item<int64_t>(), 1) << "at the targets";
}

TEST_P(CrossEntropy, IgnoresTargetsOfOtherShards) {
  const auto logits = randn({3, 20}, at::kFloat);
  const auto row_max = at::amax(logits, {1}).contiguous();
  const auto sum = guarded({3}, at::kFloat), target = guarded({3}, at::kFloat);
  cross_entropy_sums(logits, row_max, at::tensor({9, 30, -100}, at::kLong), 10, sum, target);
  EXPECT_TRUE(at::equal(target, at::zeros({3})));
  const at::Tensor softmax = at::softmax(logits, 1);
  cross_entropy_gradient(logits, row_max, sum, at::tensor({9, 30, -100}, at::kLong), 10,
                         at::ones({3}));
  expect_close(logits, softmax, "softmax alone");
}

TEST_P(CrossEntropy, KeepsNaN) {
  for (const int64_t column : {0, 33, 49}) {
    const auto logits = randn({1, 50}, at::kFloat);
    logits[0][column] = NAN;
    const auto result = run(logits, at::ones({1}, at::kLong), at::ones({1}), {0});
    EXPECT_TRUE(std::isnan(result.loss.item<float>())) << column;
  }
}

// The exponential alone: rows with one finite column.
TEST_P(CrossEntropy, ExponentialIsAccurate) {
  constexpr int64_t kRows = 20000, kColumns = 64;
  const auto x = at::linspace(-87.2, 0, kRows, at::kDouble).to(at::kFloat);
  const auto logits = at::full({kRows, kColumns}, -kInf);
  logits.select(1, 5).copy_(x);
  const auto sum = guarded({kRows}, at::kFloat), target = guarded({kRows}, at::kFloat);
  cross_entropy_sums(logits, at::zeros({kRows}), at::full({kRows}, -1, at::kLong), 0, sum, target);
  const at::Tensor exact = x.to(at::kDouble).exp();
  const double error = ((sum.to(at::kDouble) - exact).abs() / exact).max().item<double>();
  RecordProperty("relative_error", std::to_string(error * 1e9) + "e-9");
  EXPECT_LE(error, 2e-7);
}

TEST_P(CrossEntropy, DoesNotDependOnThreads) {
  const auto logits = randn({300, 257}, at::kBFloat16, 3);
  const auto target = targets(300, 257);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = run(logits, target, at::ones({300}), {0});
  at::set_num_threads(3);
  const auto three = run(logits, target, at::ones({300}), {0});
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.loss, three.loss));
  EXPECT_TRUE(at::equal(one.gradient, three.gradient));
}

TEST_P(CrossEntropy, RefusesBadArguments) {
  const auto logits = randn({4, 6}, at::kFloat), numbers = randn({4}, at::kFloat);
  const auto target = targets(4, 6);
  EXPECT_MESSAGE(cross_entropy_max(logits, randn({3}, at::kFloat)),
                 "cross_entropy_max: row_max has shape [3]; it must be [4]");
  EXPECT_MESSAGE(cross_entropy_max(logits.t(), numbers), "logits [6, 4] has strides [1, 6]");
  EXPECT_MESSAGE(cross_entropy_sums(logits, numbers, target.to(at::kInt), 0, numbers, numbers),
                 "targets is Int; it must be Long");
  EXPECT_MESSAGE(
      cross_entropy_gradient(logits, numbers, randn({4}, at::kDouble), target, 0, numbers),
      "sum_exp is Double; it must be Float");
  EXPECT_MESSAGE(
      cross_entropy_gradient(logits, numbers, numbers, target, 0, randn({4}, at::kBFloat16)),
      "weight is BFloat16; it must be Float");
}

INSTANTIATE_FOR_TARGETS(CrossEntropy);

}  // namespace
}  // namespace tessera::kernels
