// Every layer with a backward pass of its own against plain ATen under autograd, on 1, 2 and 4
// ranks.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <cmath>
#include <limits>

#include "models/layers/attention.h"
#include "models/layers/rms_norm.h"
#include "models/layers/rotary.h"
#include "models/layers/swiglu.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/tensor_parallel/linear.h"
#include "parallel/tensor_parallel/vocab_cross_entropy.h"
#include "parallel/tensor_parallel/vocab_embedding.h"

namespace tessera {
namespace {

// fp32 sums in another order.
constexpr double kTolerance = 2e-5;

at::Tensor random(at::IntArrayRef shape, int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randn(shape, generator, at::kFloat);
}

at::Tensor leaf(const at::Tensor& tensor) {
  return tensor.clone().set_requires_grad(true);
}

void expect_equal(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  EXPECT_TRUE(at::allclose(a.detach(), b.detach(), kTolerance, kTolerance))
      << what << ": largest difference " << (a - b).abs().max().item<double>();
}

Weight weight_of(const at::Tensor& value) {
  return {value.clone(), at::zeros_like(value)};
}

TEST(Linear, ColumnThenRowEqualsTheWholeProduct) {
  const at::Tensor x0 = random({6, 8}, 1), up0 = random({12, 8}, 2), down0 = random({8, 12}, 3);
  const at::Tensor dy = random({6, 8}, 4);
  const at::Tensor x = leaf(x0), up = leaf(up0), down = leaf(down0);
  const at::Tensor y = at::mm(at::mm(x, up.t()), down.t());
  y.backward(dy);
  for (int ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& tp) {
      const int64_t n = 12 / ranks, begin = tp.rank() * n;
      const Weight my_up = weight_of(up0.narrow(0, begin, n).contiguous());
      const Weight my_down = weight_of(down0.narrow(1, begin, n).contiguous());
      const at::Tensor my_x = leaf(x0);
      const at::Tensor my_y =
          row_parallel_linear(column_parallel_linear(my_x, my_up, tp), my_down, tp);
      expect_equal(my_y, y, "y");
      my_y.backward(dy);
      expect_equal(my_x.grad(), x.grad(), "dx");
      expect_equal(my_up.grad, up.grad().narrow(0, begin, n), "d up");
      expect_equal(my_down.grad, down.grad().narrow(1, begin, n), "d down");
    });
  }
}

TEST(Linear, AddsToTheGradientThatIsThere) {
  run_thread_ranks(1, [](Communicator& tp) {
    const Weight w = weight_of(random({3, 4}, 1));
    const at::Tensor x = leaf(random({2, 4}, 2));
    column_parallel_linear(x, w, tp).sum().backward();
    const at::Tensor once = w.grad.clone();
    column_parallel_linear(x, w, tp).sum().backward();
    expect_equal(w.grad, 2 * once, "twice");
  });
}

TEST(VocabEmbedding, EqualsTheWholeTable) {
  const at::Tensor table0 = random({12, 5}, 1);
  const at::Tensor tokens = at::tensor(std::vector<int64_t>{0, 11, 3, 3, 6, 5}).view({2, 3});
  const at::Tensor table = leaf(table0);
  const at::Tensor y = at::embedding(table, tokens).view({6, 5});
  const at::Tensor dy = random({6, 5}, 2);
  y.backward(dy);
  for (int ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& tp) {
      const int64_t n = 12 / ranks, begin = tp.rank() * n;
      Parameter mine;
      mine.box = {{begin, 0}, {n, 5}};
      mine.value = leaf(table0.narrow(0, begin, n));
      mine.grad = at::zeros({n, 5});
      const at::Tensor my_y = vocab_parallel_embedding(tokens, mine, tp, at::kFloat);
      EXPECT_TRUE(at::equal(my_y.detach(), y.detach()));
      my_y.backward(dy);
      expect_equal(mine.grad, table.grad().narrow(0, begin, n), "d table");
    });
  }
}

TEST(VocabEmbedding, Bf16GradientsOfAFrequentTokenAddUpInFp32) {
  auto tp = make_self_communicator();
  Parameter table;
  table.box = {{0, 0}, {4, 3}};
  table.value = at::zeros({4, 3}, at::kBFloat16).set_requires_grad(true);
  table.grad = at::zeros({4, 3}, at::kBFloat16);
  const at::Tensor tokens = at::ones({1, 1000}, at::kLong);  // bf16 stops counting at 256
  vocab_parallel_embedding(tokens, table, *tp, at::kBFloat16).sum().backward();
  EXPECT_EQ(table.grad[1][0].item<float>(), 1000.0F);
  EXPECT_EQ(table.grad[0][0].item<float>(), 0.0F);
}

class Loss : public testing::TestWithParam<std::tuple<int, int64_t>> {};

TEST_P(Loss, EqualsCrossEntropyOfWholeLogits) {
  const auto [ranks, rows] = GetParam();
  const int64_t hidden = 8, vocab = 16;
  const at::Tensor h0 = random({rows, hidden}, 1), w0 = random({vocab, hidden}, 2);
  const at::Tensor targets = at::arange(rows, at::kLong).mul(7).remainder(vocab);
  at::Tensor weights = at::full({rows}, 0.25, at::kFloat);
  weights.narrow(0, 0, rows / 3).fill_(0.0);  // rows that only fill up
  const at::Tensor h = leaf(h0), w = leaf(w0);
  const at::Tensor loss =
      (at::cross_entropy_loss(at::mm(h, w.t()), targets, {}, at::Reduction::None) * weights).sum();
  loss.backward();
  run_thread_ranks(ranks, [&, ranks = ranks](Communicator& tp) {
    const int64_t n = vocab / ranks, begin = tp.rank() * n;
    const Weight mine = weight_of(w0.narrow(0, begin, n).contiguous());
    const at::Tensor my_h = leaf(h0);
    const at::Tensor my_loss = vocab_parallel_loss(my_h, mine, begin, vocab, targets, weights, tp);
    expect_equal(my_loss, loss, "loss");
    my_loss.backward();
    expect_equal(my_h.grad(), h.grad(), "dh");
    expect_equal(mine.grad, w.grad().narrow(0, begin, n), "dw");
    at::AutoGradMode no_grad(false);
    const Weight untouched = weight_of(mine.value);
    expect_equal(vocab_parallel_loss(my_h, untouched, begin, vocab, targets, weights, tp), loss,
                 "no grad");
    EXPECT_EQ(untouched.grad.abs().max().item<float>(), 0.0F);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Loss,
                         testing::Combine(testing::Values(1, 2, 4), testing::Values(3, 64, 1000)));

TEST(Loss, RowsOfWeightZeroAddExactlyNothing) {
  auto tp = make_self_communicator();
  const at::Tensor h = random({4, 8}, 1);
  const at::Tensor targets = at::zeros({4}, at::kLong);
  const Weight w = weight_of(random({16, 8}, 2));
  const at::Tensor x = leaf(h);
  const at::Tensor loss = vocab_parallel_loss(x, w, 0, 16, targets, at::zeros({4}), *tp);
  loss.backward();
  EXPECT_EQ(loss.item<float>(), 0.0F);
  EXPECT_EQ(x.grad().abs().max().item<float>(), 0.0F);
  EXPECT_EQ(w.grad.abs().max().item<float>(), 0.0F);
}

TEST(RmsNorm, EqualsTheFormulaWithTheResidualPath) {
  const at::Tensor x0 = random({6, 10}, 1), delta0 = random({6, 10}, 2), w0 = random({10}, 3);
  const at::Tensor dres = random({6, 10}, 4), dy = random({6, 10}, 5);
  for (bool with_delta : {false, true}) {
    const at::Tensor x = leaf(x0), delta = leaf(delta0), w = leaf(w0);
    const at::Tensor h = with_delta ? x + delta : x * 1.0;
    const at::Tensor y = h * at::rsqrt(h.pow(2).mean(-1, true) + 1e-5) * w;
    ((h * dres).sum() + (y * dy).sum()).backward();

    const Weight mine = weight_of(w0);
    const at::Tensor my_x = leaf(x0), my_delta = leaf(delta0);
    const auto result =
        with_delta ? add_rms_norm(my_x, my_delta, mine, 1e-5) : rms_norm(my_x, mine, 1e-5);
    expect_equal(result.residual, h, "residual");
    expect_equal(result.y, y, "y");
    ((result.residual * dres).sum() + (result.y * dy).sum()).backward();
    expect_equal(my_x.grad(), x.grad(), "dx");
    if (with_delta) expect_equal(my_delta.grad(), delta.grad(), "d delta");
    expect_equal(mine.grad, w.grad(), "dw");
  }
}

TEST(RmsNorm, WorksWhereTheResidualGoesNowhere) {
  const Weight w = weight_of(random({10}, 1));
  const at::Tensor x = leaf(random({6, 10}, 2));
  rms_norm(x, w, 1e-5).y.sum().backward();
  EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>());
}

TEST(SwiGlu, EqualsTheFormula) {
  const at::Tensor x0 = random({5, 14}, 1), dy = random({5, 7}, 2);
  const at::Tensor x = leaf(x0), mine = leaf(x0);
  const at::Tensor y = at::silu(x.narrow(1, 0, 7)) * x.narrow(1, 7, 7);
  y.backward(dy);
  const at::Tensor my_y = swiglu(mine);
  expect_equal(my_y, y, "y");
  my_y.backward(dy);
  expect_equal(mine.grad(), x.grad(), "dx");
}

// The half-split rotation of Hugging Face's Llama, x [B, heads, S, D].
at::Tensor turned_by(const at::Tensor& x, const RopeTable& rope) {
  const auto half = x.size(-1) / 2;
  const at::Tensor cos = at::cat({rope.cos, rope.cos}, -1), sin = at::cat({rope.sin, rope.sin}, -1);
  const at::Tensor turned = at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
  return x * cos + turned * sin;
}

// Every kernel, by its name.
constexpr std::pair<AttentionKernel, const char*> kKernels[] = {
    {AttentionKernel::kChosen, "chosen"},
    {AttentionKernel::kFlash, "flash"},
    {AttentionKernel::kBlocks, "our own, which dropout takes"},
    {AttentionKernel::kOperator, "LibTorch's operator, which a GPU takes"}};

struct CausalCase {
  int64_t batch, length, heads, kv_heads, window;
};

TEST(Attention, OfRotatedHeadsEqualsSoftmaxOfMaskedScores) {
  constexpr int64_t kWidth = 6;
  // 1100 tokens: several blocks of query rows, of which some share a mask.
  for (const CausalCase& c :
       {CausalCase{2, 9, 4, 4, 0}, CausalCase{2, 9, 4, 2, 0}, CausalCase{2, 9, 6, 1, 0},
        CausalCase{2, 9, 4, 2, 1}, CausalCase{2, 9, 4, 2, 4}, CausalCase{2, 9, 4, 2, 9},
        CausalCase{1, 1100, 2, 1, 40}, CausalCase{1, 1100, 2, 1, 600}}) {
    SCOPED_TRACE(std::to_string(c.length) + " tokens, window " + std::to_string(c.window));
    const RopeTable rope(c.length, kWidth, 10000.0, at::kFloat);
    const int64_t rows = c.batch * c.length, all = c.heads + 2 * c.kv_heads;
    const at::Tensor x0 = random({rows, all * kWidth}, 1), dy = random({rows, c.heads * kWidth}, 2);

    const at::Tensor x = leaf(x0);
    const at::Tensor h = x.view({c.batch, c.length, all, kWidth}).transpose(1, 2);
    const int64_t groups = c.heads / c.kv_heads;
    const at::Tensor q = turned_by(h.narrow(1, 0, c.heads), rope);
    const at::Tensor k =
        turned_by(h.narrow(1, c.heads, c.kv_heads), rope).repeat_interleave(groups, 1);
    const at::Tensor v = h.narrow(1, c.heads + c.kv_heads, c.kv_heads).repeat_interleave(groups, 1);
    at::Tensor seen = at::ones({c.length, c.length}, at::kBool).tril();
    if (c.window > 0) seen = seen.logical_and(seen.triu(1 - c.window));
    const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) / std::sqrt(6.0))
                                  .masked_fill(seen.logical_not(), -INFINITY);
    const at::Tensor y = at::matmul(at::softmax(scores, -1), v).transpose(1, 2).reshape({rows, -1});
    y.backward(dy);

    for (const auto& [kernel, name] : kKernels) {
      SCOPED_TRACE(name);
      const at::Tensor mine = leaf(x0);
      // rotate() consumes its input.
      const at::Tensor turned = rotate(mine * 1.0, c.heads + c.kv_heads, kWidth, rope);
      const at::Tensor my_y =
          self_attention(turned, {c.batch, c.heads, c.kv_heads, kWidth},
                         {.causal = true, .window = c.window, .kernel = kernel});
      expect_equal(my_y, y, "y");
      my_y.backward(dy);
      expect_equal(mine.grad(), x.grad(), "d qkv");
    }
  }
}

// Heads that are not rotated in pairs may have any width.
TEST(Attention, TakesHeadsOfOddWidth) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const double tolerance = dtype == at::kFloat ? kTolerance : 2e-2;
    for (const int64_t width : {1, 5, 7}) {
      const at::Tensor x0 = random({18, 6 * width}, 1).to(dtype), dy = random({18, 2 * width}, 2);
      const at::Tensor x = leaf(x0.to(at::kFloat));
      const at::Tensor h = x.view({2, 9, 6, width}).transpose(1, 2);
      const at::Tensor hidden = at::ones({9, 9}, at::kBool).tril().logical_not();
      const at::Tensor scores = (at::matmul(h.narrow(1, 0, 2), h.narrow(1, 2, 2).transpose(2, 3)) /
                                 std::sqrt(static_cast<double>(width)))
                                    .masked_fill(hidden, -INFINITY);
      const at::Tensor y = at::matmul(at::softmax(scores, -1), h.narrow(1, 4, 2))
                               .transpose(1, 2)
                               .reshape({18, 2 * width});
      y.backward(dy.to(dtype).to(at::kFloat));
      for (const auto& [kernel, name] : kKernels) {
        SCOPED_TRACE(std::string(name) + ", width " + std::to_string(width));
        const at::Tensor mine = leaf(x0);
        const at::Tensor my_y =
            self_attention(mine, {2, 2, 2, width}, {.causal = true, .kernel = kernel});
        my_y.backward(dy.to(dtype));
        EXPECT_TRUE(at::allclose(my_y.to(at::kFloat), y, tolerance, tolerance));
        EXPECT_TRUE(at::allclose(mine.grad().to(at::kFloat), x.grad(), tolerance, tolerance));
      }
    }
  }
}

TEST(Rotate, TurnsItsInputAndNothingThatOthersHold) {
  const RopeTable rope(4, 6, 10000.0, at::kFloat);
  const at::Tensor x0 = random({8, 18}, 1), dy = random({8, 18}, 2), given = dy.clone();
  const at::Tensor x = leaf(x0), in = x * 1.0;
  const at::Tensor y = rotate(in, 2, 6, rope);
  EXPECT_TRUE(y.is_same(in));
  EXPECT_TRUE(at::equal(y.narrow(1, 12, 6), x0.narrow(1, 12, 6)));  // beyond the two heads
  const at::Tensor heads = x0.view({2, 4, 3, 6}).transpose(1, 2);
  expect_equal(y.view({2, 4, 3, 6}).transpose(1, 2).narrow(1, 0, 2),
               turned_by(heads.narrow(1, 0, 2), rope), "y");
  // The transpose of a rotation turns back.
  y.backward(dy);
  EXPECT_TRUE(at::equal(dy, given));
  const RopeTable back = [&] {
    RopeTable table = rope;
    table.sin = -rope.sin;
    return table;
  }();
  expect_equal(x.grad().view({2, 4, 3, 6}).transpose(1, 2).narrow(1, 0, 2),
               turned_by(dy.view({2, 4, 3, 6}).transpose(1, 2).narrow(1, 0, 2), back), "dx");
}

// What transformers computes for theta 500000, width 16, factor 8.
constexpr double kLlama3Frequencies[] = {1.0,           0.193922758,   0.0376060307,
                                         0.00729266508, 5.24846022e-4, 3.42810235e-5,
                                         6.64786967e-6, 1.28917316e-6};
TEST(Rope, Llama3StretchesTheLowFrequencies) {
  const RopeScaling scaling{RopeScalingType::kLlama3, 8.0, 1.0, 4.0, 8192};
  const RopeTable table(2, 16, 500000.0, at::kFloat, scaling);
  for (int i = 0; i < 8; ++i)
    EXPECT_NEAR(std::asin(table.sin[1][i].item<double>()), kLlama3Frequencies[i],
                2e-7 * kLlama3Frequencies[i] + 1e-12)
        << i;
  const RopeTable linear(2, 16, 500000.0, at::kFloat, {RopeScalingType::kLinear, 4.0});
  EXPECT_NEAR(std::asin(linear.sin[1][0].item<double>()), 0.25, 1e-7);
}

}  // namespace
}  // namespace tessera
