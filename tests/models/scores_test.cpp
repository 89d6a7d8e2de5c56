// What evaluation counts: the parallel arg-max, right targets and whole right samples.
#include "models/scores.h"

#include "parallel/tensor_parallel/vocab_argmax.h"
#include "stage_chain.h"

namespace tessera {
namespace {

// E04: the same predictions on every number of ranks, ties included (the first column wins).
TEST(VocabParallelArgmax, IsTheArgmaxOfAllLogits) {
  at::Tensor h = at::empty({33, 8}), weight = at::empty({12, 8}), bias = at::empty({12});
  for (at::Tensor* x : {&h, &weight, &bias})
    Philox(3).normals(static_cast<uint64_t>(x->dim() + x->size(0)), 0, 1.0, x->data_ptr<float>(),
                      x->numel());
  weight[7] = weight[2];  // equal logits on different ranks
  bias[7] = bias[2];
  for (const bool with_bias : {false, true}) {
    at::Tensor logits = at::mm(h, weight.t());
    if (with_bias) logits += bias;
    const at::Tensor expected = logits.argmax(1);
    EXPECT_GT(expected.eq(2).sum().item<int64_t>(), 0);
    for (int tp : {1, 2, 4}) {
      on_tp_ranks(tp, [&](Mesh& mesh) {
        const int64_t rows = 12 / tp, begin = mesh.tp_rank() * rows;
        const at::Tensor found = vocab_parallel_argmax(
            h, weight.narrow(0, begin, rows),
            with_bias ? bias.narrow(0, begin, rows) : at::Tensor(), begin, mesh.tp_group());
        EXPECT_TRUE(at::equal(found, expected)) << tp;
      });
    }
  }
}

TEST(VocabParallelArgmax, ARankMayHoldNoColumn) {
  on_tp_ranks(2, [&](Mesh& mesh) {
    const at::Tensor h = at::eye(3);
    const bool first = mesh.tp_rank() == 0;
    const at::Tensor weight = first ? at::eye(3) : at::empty({0, 3});
    const at::Tensor found =
        vocab_parallel_argmax(h, weight, at::Tensor(), first ? 0 : 3, mesh.tp_group());
    EXPECT_TRUE(at::equal(found, at::arange(3)));
  });
}

TEST(Scores, CountTargetsAndWholeSamplesOnce) {
  MicroBatch batch;
  batch.targets = at::tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, at::kLong).view({4, 3});
  batch.weights = at::tensor({0.5, 0.5, 0.0,   // right where it counts
                              0.5, 0.5, 0.5,   // one wrong
                              0.5, 0.5, 0.5,   // all right
                              0.0, 0.0, 0.0})  // a row that only fills up
                      .view({4, 3});
  const at::Tensor predictions = at::tensor({1, 2, 9, 4, 5, 9, 7, 8, 9, 1, 2, 3}, at::kLong);
  const TensorList found = scores(at::ones({}), predictions, batch);
  ASSERT_EQ(found.size(), kMostScores);
  EXPECT_EQ(found[kLossSum].item<double>(), 1.0);
  EXPECT_EQ(found[kRightTargets].item<int64_t>(), 7);
  EXPECT_EQ(found[kRightSamples].item<int64_t>(), 2);
}

}  // namespace
}  // namespace tessera
