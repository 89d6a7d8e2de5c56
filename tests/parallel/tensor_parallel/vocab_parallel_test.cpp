// Vocab-parallel embedding and loss: vocabularies that tp does not divide, sequence parallelism,
// and chunks of tokens, against plain ATen under autograd.
#include "parallel/comm/core/self_communicator.h"
#include "parallel/parameter.h"
#include "parallel/tensor_parallel/vocab_cross_entropy.h"
#include "parallel/tensor_parallel/vocab_embedding.h"
#include "tp_testing.h"

namespace tessera {
namespace {

using testing::expect_equal;
using testing::leaf;
using testing::on_all_groups;
using testing::part_of;
using testing::random;
using testing::weight_of;

TEST(VocabParallel, EmbeddingOfAnUnevenTable) {
  const at::Tensor table = leaf(random({11, 5}, 1));
  const at::Tensor tokens = at::tensor(std::vector<int64_t>{0, 10, 3, 3, 6, 5, 9, 8}).view({2, 4});
  const at::Tensor y = at::embedding(table, tokens).view({8, 5});
  const at::Tensor dy = random({8, 5}, 2);
  y.backward(dy);
  on_all_groups([&](const TensorParallel& tp) {
    ParameterTable specs(tp.size(), tp.rank());
    Parameter& mine = specs.add({"table", {11, 5}, Placement::uneven_shard(0), {}});
    mine.value = leaf(part_of(table.detach(), 0, tp.size(), tp.rank()));
    mine.grad = at::zeros(mine.box.shape);
    const at::Tensor my_y = vocab_parallel_embedding(tokens, mine, tp, at::kFloat);
    EXPECT_TRUE(at::equal(my_y.detach(), tp.own_tokens(y.detach())));
    my_y.backward(tp.own_tokens(dy));
    expect_equal(mine.grad, part_of(table.grad(), 0, tp.size(), tp.rank()), "d table");
  });
}

// Known fault N01: rows that only pad the vocabulary took part in the softmax.
TEST(VocabParallel, NoRowThatDoesNotExistIsInTheSum) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_thread_ranks(ranks, [&](Communicator& group) {
      ParameterTable specs(ranks, group.rank());
      const Parameter& head = specs.add({"head", {5, 4}, Placement::uneven_shard(0), {}});
      const Weight zeros = weight_of(at::zeros(head.box.shape));
      const at::Tensor loss =
          vocab_parallel_loss(leaf(random({2, 4}, 1)), zeros, head.box.offset[0], 5,
                              at::tensor({int64_t{0}, int64_t{4}}), at::full({2}, 0.5), group);
      EXPECT_NEAR(loss.item<double>(), 1.609438, 1e-6);
    });
  }
}

// What a chunk is, in tokens; 0: the default.
TEST(VocabParallel, LossInChunksEqualsTheWholeLogits) {
  constexpr int64_t kTokens = 96, kHidden = 8, kVocab = 19;
  const at::Tensor targets = at::arange(kTokens, at::kLong).mul(7).remainder(kVocab);
  at::Tensor weights = random({kTokens}, 3).abs();
  weights.narrow(0, 0, 5).fill_(0.0);  // rows that only fill up
  const at::Tensor h = leaf(random({kTokens, kHidden}, 1)), w = leaf(random({kVocab, kHidden}, 2));
  const at::Tensor loss =
      (at::cross_entropy_loss(at::mm(h, w.t()), targets, {}, at::Reduction::None) * weights).sum();
  loss.backward();
  for (const int64_t chunk : {0, 4, 20, 64, 1000}) {
    on_all_groups([&](const TensorParallel& group) {
      const TensorParallel tp(
          group.group(), {.sequence_parallel = group.sequence_parallel(), .loss_chunk = chunk});
      const auto part = [&](const at::Tensor& x) { return part_of(x, 0, tp.size(), tp.rank()); };
      const Weight mine = weight_of(part(w.detach()));
      const at::Tensor my_h = leaf(tp.own_tokens(h.detach()));
      const int64_t start = part(at::arange(kVocab, at::kLong))[0].item<int64_t>();
      const at::Tensor my_loss =
          vocab_parallel_loss(my_h, mine, start, kVocab, targets, weights, tp);
      expect_equal(my_loss, loss, "loss");
      my_loss.backward();
      expect_equal(my_h.grad(), tp.own_tokens(h.grad()), "dh");
      expect_equal(mine.grad, part(w.grad()), "dw");
    });
  }
}

// In bf16, many small terms added one chunk after the other would be lost.
TEST(VocabParallel, HalvesInChunksRoundTheWeightsGradientOnce) {
  constexpr int64_t kTokens = 2048;
  run_thread_ranks(1, [&](Communicator& group) {
    const at::Tensor h = at::ones({kTokens, 1}, at::kBFloat16);
    const at::Tensor targets = at::zeros({kTokens}, at::kLong), weights = at::ones({kTokens});
    const auto gradient = [&](int64_t chunk) {
      const Weight w = weight_of(at::zeros({2, 1}, at::kBFloat16));
      vocab_parallel_loss(leaf(h), w, 0, 2, targets, weights,
                          TensorParallel(group, {.loss_chunk = chunk}));
      return w.grad;
    };
    EXPECT_EQ(gradient(1)[1].item<float>(), 1024.0F);
    EXPECT_TRUE(at::equal(gradient(1), gradient(0)));
  });
}

TEST(VocabParallel, ChunksAreAsManyTokensOfEachRank) {
  const auto group = make_self_communicator();
  const auto tokens = [&](int64_t chunk, at::ScalarType dtype) {
    return loss_chunk_tokens({1 << 17, 64, dtype, 4096},
                             TensorParallel(*group, {.loss_chunk = chunk}));
  };
  EXPECT_EQ(tokens(0, at::kFloat), 128);  // 64 MiB
  EXPECT_EQ(tokens(0, at::kDouble), 64);
  EXPECT_EQ(tokens(0, at::kBFloat16), 4096);  // all
  EXPECT_EQ(tokens(1, at::kFloat), 1);
  EXPECT_EQ(tokens(100, at::kBFloat16), 100);
  EXPECT_EQ(tokens(9999, at::kFloat), 4096);
  // Of 64 MiB the larger parts hold 64 tokens' logits, the smaller ones 128.
  run_thread_ranks(2, [&](Communicator& ranks) {
    EXPECT_EQ(loss_chunk_tokens({(1 << 18) + 1, 64, at::kFloat, 4096}, ranks), 64);
  });
  run_thread_ranks(4, [&](Communicator& ranks) {
    const TensorParallel tp(ranks, {.sequence_parallel = true, .loss_chunk = 8});
    EXPECT_EQ(loss_chunk_tokens({1000, 64, at::kFloat, 4096}, tp), 8);
  });
}

}  // namespace
}  // namespace tessera
