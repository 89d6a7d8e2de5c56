// Dropout by counted masks: the layer, our own attention, and whole models on every split.
#include "models/layers/attention.h"
#include "models/layers/dropout.h"
#include "models/layers/rotary.h"
#include "parallel/comm/core/self_communicator.h"
#include "stage_chain.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace tessera {
namespace {

at::Tensor random(at::IntArrayRef shape, int64_t seed, at::ScalarType dtype) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randn(shape, generator, at::TensorOptions(at::kDouble)).to(dtype);
}

at::Tensor leaf(const at::Tensor& tensor) {
  return tensor.clone().set_requires_grad(true);
}

const at::Tensor kRows = at::tensor({int64_t{5}, int64_t{6}});

const auto kOne = make_self_communicator();

TEST(Dropout, BackwardHasTheSameMask) {
  const DropoutPlace place(0.4, 1, "a");
  const at::Tensor x = leaf(random({6, 10}, 1, at::kFloat));
  const at::Tensor y = dropout(x, place, kRows, *kOne);
  y.backward(at::ones_like(y));
  EXPECT_TRUE(at::equal(x.grad(), at::where(y != 0, at::full({}, 1 / (1 - 0.4)), at::zeros({}))));
  EXPECT_TRUE(at::equal(y.detach(), x.detach() * x.grad()));
}

TEST(Dropout, NothingIsDroppedInEvaluationOrAtZero) {
  const at::Tensor x = leaf(random({6, 10}, 1, at::kFloat));
  EXPECT_TRUE(dropout(x, DropoutPlace(0.4, 1, "a"), {}, *kOne).is_same(x));
  EXPECT_TRUE(dropout(x, DropoutPlace(0.0, 1, "a"), kRows, *kOne).is_same(x));
}

TEST(Dropout, PlacesAndSeedsHaveMasksOfTheirOwn) {
  const at::Tensor x = at::ones({6, 100});
  const at::Tensor a = dropout(x, DropoutPlace(0.5, 1, "a"), kRows, *kOne);
  EXPECT_TRUE(at::equal(a, dropout(x, DropoutPlace(0.5, 1, "a"), kRows, *kOne)));
  EXPECT_FALSE(at::equal(a, dropout(x, DropoutPlace(0.5, 1, "b"), kRows, *kOne)));
  EXPECT_FALSE(at::equal(a, dropout(x, DropoutPlace(0.5, 2, "a"), kRows, *kOne)));
}

// Parts of the rows need not end where a sample does.
TEST(Dropout, PartsOfTheTokensHaveTheWholesMask) {
  const DropoutPlace place(0.4, 1, "a");
  const at::Tensor x = random({6, 10}, 1, at::kFloat), dy = random({6, 10}, 2, at::kFloat);
  const at::Tensor whole = leaf(x);
  const at::Tensor y = dropout(whole, place, kRows, *kOne);
  y.backward(dy);
  for (int ranks : {2, 3, 6}) {
    run_thread_ranks(ranks, [&](Communicator& group) {
      const TensorParallel tp(group, {.sequence_parallel = true});
      const at::Tensor own = leaf(tp.own_tokens(x));
      const at::Tensor own_y = dropout(own, place, kRows, tp);
      EXPECT_TRUE(at::equal(own_y.detach(), tp.own_tokens(y.detach())));
      own_y.backward(tp.own_tokens(dy));
      EXPECT_TRUE(at::equal(own.grad(), tp.own_tokens(whole.grad())));
    });
  }
}

// Between a column- and a row-parallel layer.
TEST(Dropout, PartsOfTheColumnsHaveTheWholesMask) {
  const DropoutPlace place(0.4, 1, "a");
  const at::Tensor x = random({6, 12}, 1, at::kFloat), dy = random({6, 12}, 2, at::kFloat);
  const at::Tensor whole = leaf(x);
  const at::Tensor y = dropout(whole, place, kRows, *kOne);
  y.backward(dy);
  for (int ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& group) {
      const TensorParallel tp(group, {.sequence_parallel = true});
      const int64_t width = 12 / ranks;
      const auto own = [&](const at::Tensor& all) {
        return all.narrow(1, tp.rank() * width, width);
      };
      const at::Tensor part = leaf(own(x).contiguous());
      const at::Tensor part_y = column_dropout(part, place, kRows, tp);
      EXPECT_TRUE(at::equal(part_y.detach(), own(y.detach())));
      part_y.backward(own(dy));
      EXPECT_TRUE(at::equal(part.grad(), own(whole.grad())));
    });
  }
}

constexpr std::pair<int64_t, int64_t> kHeads[] = {{4, 4}, {4, 2}, {6, 1}};

struct Attended {
  at::Tensor y, grad;
};

template <typename Attention>
Attended attend(const at::Tensor& qkv, const at::Tensor& dy, Attention attention) {
  const at::Tensor x = leaf(qkv);
  const at::Tensor y = attention(x * 1.0);  // it consumes its input
  y.backward(dy);
  return {y.detach(), x.grad()};
}

TEST(DropoutAttention, AtRateZeroIsLibTorchs) {
  for (const auto& [heads, kv_heads] : kHeads) {
    // 300 queries of 6 heads are more than a block.
    const AttentionShape s{2, heads, kv_heads, 8};
    const int64_t rows = 600, rotated = heads + kv_heads, columns = (heads + 2 * kv_heads) * 8;
    for (const auto& [dtype, tolerance] : {std::pair{at::kFloat, 1e-5},
                                           {at::kDouble, 1e-12},
                                           {at::kBFloat16, 1e-2},
                                           {at::kHalf, 2e-3}}) {
      const RopeTable rope(300, 8, 10000.0, at::kFloat);
      const at::Tensor qkv = random({rows, columns}, 1, dtype),
                       dy = random({rows, heads * 8}, 2, dtype);
      const auto by = [&](AttentionKernel kernel) {
        return attend(qkv, dy, [&](const at::Tensor& x) {
          const AttentionDropout nothing{DropoutPlace(0.0, 1, "a"), 0, kRows};
          return self_attention(rotate(x, rotated, 8, rope), s,
                                {.causal = true, .dropout = nothing, .kernel = kernel});
        });
      };
      const auto theirs = by(AttentionKernel::kChosen), ours = by(AttentionKernel::kBlocks);
      EXPECT_EQ(ours.y.scalar_type(), dtype);
      EXPECT_LE(distance(ours.y, theirs.y), tolerance) << dtype;
      EXPECT_LE(distance(ours.grad, theirs.grad), tolerance) << dtype;
    }
  }
}

// Softmax of masked scores under autograd, with the mask read off the layer: values of ones give
// the sum of a row's dropped probabilities, unit values its columns.
at::Tensor reference(const at::Tensor& x, const AttentionShape& s, const at::Tensor& factors) {
  const int64_t all = s.heads + 2 * s.kv_heads, groups = s.heads / s.kv_heads;
  const int64_t length = x.size(0) / s.batch;
  const at::Tensor h = x.view({s.batch, length, all, s.head_dim}).transpose(1, 2);
  const at::Tensor q = h.narrow(1, 0, s.heads);
  const at::Tensor k = h.narrow(1, s.heads, s.kv_heads).repeat_interleave(groups, 1);
  const at::Tensor v = h.narrow(1, s.heads + s.kv_heads, s.kv_heads).repeat_interleave(groups, 1);
  const at::Tensor hidden = at::ones({length, length}, at::kBool).tril().logical_not();
  const at::Tensor scores =
      (at::matmul(q, k.transpose(2, 3)) / std::sqrt(s.head_dim)).masked_fill(hidden, -INFINITY);
  return at::matmul(at::softmax(scores, -1) * factors, v)
      .transpose(1, 2)
      .reshape({s.batch * length, s.heads * s.head_dim});
}

// The factors of every probability, [B, heads, S, S]: zero scores make them 1 / (query + 1), and
// values of unit rows bring head_dim keys at a time to light.
at::Tensor factors_of(const AttentionShape& s, int64_t length, const AttentionDropout& dropped) {
  const int64_t all = s.heads + 2 * s.kv_heads;
  at::Tensor result = at::zeros({s.batch, s.heads, length, length}, at::kDouble);
  const at::Tensor reads = at::arange(1, length + 1, at::kDouble).view({1, 1, -1, 1});
  for (int64_t first = 0; first < length; first += s.head_dim) {
    const int64_t n = std::min(s.head_dim, length - first);
    at::Tensor qkv = at::zeros({s.batch, length, all, s.head_dim}, at::kDouble);
    qkv.narrow(2, s.heads + s.kv_heads, s.kv_heads)
        .narrow(1, first, n)
        .copy_(at::eye(n, s.head_dim, at::kDouble).view({1, n, 1, s.head_dim}));
    const at::Tensor y =
        self_attention(qkv.view({-1, all * s.head_dim}), s, {.causal = true, .dropout = dropped});
    result.narrow(3, first, n)
        .copy_(y.view({s.batch, length, s.heads, s.head_dim}).transpose(1, 2).narrow(3, 0, n) *
               reads);
  }
  return result;
}

TEST(DropoutAttention, IsTheFormulaWithTheMask) {
  at::AutoGradMode grad(true);
  for (const auto& [heads, kv_heads] : kHeads) {
    const AttentionShape s{2, heads, kv_heads, 8};
    const AttentionDropout dropped{DropoutPlace(0.3, 1, "a"), 0, kRows};
    const at::Tensor factors = factors_of(s, 20, dropped);
    const at::Tensor qkv = random({40, (heads + 2 * kv_heads) * 8}, 1, at::kDouble);
    const at::Tensor dy = random({40, heads * 8}, 2, at::kDouble);
    const auto expected =
        attend(qkv, dy, [&](const at::Tensor& x) { return reference(x, s, factors); });
    for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-12},
                                           {at::kFloat, 1e-5},
                                           {at::kBFloat16, 1e-2},
                                           {at::kHalf, 2e-3}}) {
      const auto ours = attend(qkv.to(dtype), dy.to(dtype), [&](const at::Tensor& x) {
        return self_attention(x, s, {.causal = true, .dropout = dropped});
      });
      EXPECT_LE(distance(ours.y, expected.y), tolerance) << dtype;
      EXPECT_LE(distance(ours.grad, expected.grad), tolerance) << dtype;
    }
  }
}

TEST(DropoutAttention, DropsAtTheRateAndByGlobalHead) {
  const AttentionShape whole{2, 4, 2, 8}, half{2, 2, 1, 8};
  const DropoutPlace place(0.25, 1, "a");
  const at::Tensor all = factors_of(whole, 100, {place, 0, kRows});
  const at::Tensor lower = at::ones({100, 100}, at::kBool).tril();
  const at::Tensor read = all.masked_select(lower);
  const double n = static_cast<double>(read.numel());
  const double kept = (read > 0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 0.75, 4 * std::sqrt(0.25 * 0.75 / n));
  EXPECT_LE((read.masked_select(read > 0) - 1 / 0.75).abs().max().item<double>(), 1e-12);
  // Two tensor-parallel ranks of two heads each; and one row alone.
  EXPECT_TRUE(at::equal(factors_of(half, 100, {place, 0, kRows}), all.narrow(1, 0, 2)));
  EXPECT_TRUE(at::equal(factors_of(half, 100, {place, 2, kRows}), all.narrow(1, 2, 2)));
  const AttentionShape one{1, 4, 2, 8};
  EXPECT_TRUE(
      at::equal(factors_of(one, 100, {place, 0, kRows.narrow(0, 1, 1)}), all.narrow(0, 1, 1)));
  EXPECT_FALSE(at::equal(all[0][0], all[0][1]));
  EXPECT_FALSE(at::equal(all[0][0], all[1][0]));
}

LlamaConfig dropping(int64_t kv_heads = 4) {
  LlamaConfig config = chain_config();
  config.num_key_value_heads = kv_heads;
  config.attention_dropout = 0.1;
  config.hidden_dropout = 0.2;
  config.embedding_dropout = 0.3;
  return config;
}

// With kv heads of their own, and one that all ranks hold.
class LlamaDropout : public testing::TestWithParam<int64_t> {};

TEST_P(LlamaDropout, SameMasksOnEveryNumberOfRanksAndInEverySplit) {
  std::map<std::string, at::Tensor> reference;
  double loss = 0.0;
  ModelOptions options;
  options.seed = 3;
  options.activations = at::kDouble;
  const LlamaConfig config = dropping(GetParam());
  const MicroBatch batch = chain_batch(at::kDouble);
  on_tp_ranks(1, [&](Mesh& mesh) {
    StageChain chain(config, 12, mesh, options);
    loss = chain.forward_backward(batch);
    reference = chain.gradients();
    MicroBatch evaluated = batch;
    evaluated.rows = at::Tensor();
    LlamaConfig without = config;
    without.attention_dropout = without.hidden_dropout = without.embedding_dropout = 0.0;
    StageChain plain(without, 12, mesh, options);
    EXPECT_EQ(chain.forward(evaluated).item<double>(), plain.forward(batch).item<double>());
    EXPECT_GT(std::abs(loss - plain.forward(batch).item<double>()), 1e-3 * loss);
  });
  for (const int tp : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const auto overlap : {TpOverlap::kBackward, TpOverlap::kRing}) {
        options.tensor_parallel = {.sequence_parallel = sequence_parallel, .overlap = overlap};
        on_tp_ranks(tp, [&](Mesh& mesh) {
          StageChain chain(config, 12, mesh, options);
          EXPECT_NEAR(chain.forward_backward(batch), loss, 1e-12 * loss);
          chain.sum_partial_gradients(mesh);
          for (auto& stage : chain.stages())
            for (const auto& parameter : stage->table().parameters())
              EXPECT_LE(distance(parameter.grad,
                                 part_of(reference.at(parameter.spec.name), parameter.box)),
                        1e-12)
                  << parameter.spec.name << " on " << tp << " ranks"
                  << (sequence_parallel ? ", sequence parallel" : "");
        });
      }
    }
  }
  options.tensor_parallel = {};
  on_tp_ranks(1, [&](Mesh& mesh) {
    StageChain chain(config, 12, mesh, options);
    double sum = 0.0;
    for (int64_t row : {1, 0})
      sum +=
          chain.forward_backward({batch.tokens.narrow(0, row, 1), batch.targets.narrow(0, row, 1),
                                  batch.weights.narrow(0, row, 1), batch.rows.narrow(0, row, 1)});
    EXPECT_NEAR(sum, loss, 1e-12 * loss);
    for (const auto& [name, grad] : chain.gradients())
      EXPECT_LE(distance(grad, reference.at(name)), 1e-12) << name;
  });
}

INSTANTIATE_TEST_SUITE_P(KvHeads, LlamaDropout, testing::Values(4, 1));

// The loss is a smooth function of the weights under masks that stay as they are.
TEST(Llama, DropoutsGradientsAreTheLosss) {
  on_tp_ranks(1, [&](Mesh& mesh) {
    ModelOptions options;
    options.activations = at::kDouble;
    StageChain chain(dropping(), 12, mesh, options);
    const MicroBatch batch = chain_batch(at::kDouble);
    chain.forward_backward(batch);
    at::AutoGradMode no_grad(false);
    constexpr double kStep = 1e-4;
    for (auto& stage : chain.stages()) {
      for (const auto& parameter : stage->table().parameters()) {
        const at::Tensor value = parameter.value.detach(), before = value.clone();
        const double norm = parameter.grad.norm().item<double>();
        const at::Tensor step = parameter.grad * (kStep / norm);
        value.copy_(before + step);
        const double above = chain.forward(batch).item<double>();
        value.copy_(before - step);
        const double below = chain.forward(batch).item<double>();
        value.copy_(before);
        EXPECT_NEAR((above - below) / (2 * kStep), norm, 2e-6 * norm) << parameter.spec.name;
      }
    }
  });
}

}  // namespace
}  // namespace tessera
