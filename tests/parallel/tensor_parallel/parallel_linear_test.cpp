// Column- and row-parallel layers with biases, with and without sequence parallelism, against plain
// ATen under autograd.
#include "base/error.h"
#include "tp_testing.h"

namespace tessera {
namespace {

using testing::completed;
using testing::expect_equal;
using testing::leaf;
using testing::on_all_groups;
using testing::part_of;
using testing::random;
using testing::weight_of;

TEST(ParallelLinear, PairWithBiasesEqualsTheWholeProducts) {
  const at::Tensor x0 = random({12, 6}, 1), dy = random({12, 6}, 2);
  const at::Tensor up = leaf(random({12, 6}, 3)), up_bias = leaf(random({12}, 4));
  const at::Tensor down = leaf(random({6, 12}, 5)), down_bias = leaf(random({6}, 6));
  const at::Tensor x = leaf(x0);
  const at::Tensor y = at::addmm(down_bias, at::tanh(at::addmm(up_bias, x, up.t())), down.t());
  y.backward(dy);
  on_all_groups(
      [&](const TensorParallel& tp) {
        const auto part = [&](const at::Tensor& t, int dim) {
          return part_of(t.detach(), dim, tp.size(), tp.rank());
        };
        const Weight my_up = weight_of(part(up, 0)), my_up_bias = weight_of(part(up_bias, 0));
        const Weight my_down = weight_of(part(down, 1)),
                     my_down_bias = weight_of(down_bias.detach());
        const at::Tensor my_x = leaf(tp.own_tokens(x0));
        const at::Tensor hidden = at::tanh(column_parallel_linear(my_x, my_up, tp, {}, my_up_bias));
        const at::Tensor my_y = row_parallel_linear(hidden, my_down, tp, {}, my_down_bias);
        expect_equal(my_y, tp.own_tokens(y), "y");
        my_y.backward(tp.own_tokens(dy));
        expect_equal(my_x.grad(), tp.own_tokens(x.grad()), "dx");
        expect_equal(my_up.grad, part(up.grad(), 0), "d up");
        expect_equal(my_up_bias.grad, part(up_bias.grad(), 0), "d up bias");
        expect_equal(my_down.grad, part(down.grad(), 1), "d down");
        expect_equal(completed(my_down_bias.grad, tp), down_bias.grad(), "d down bias");
      },
      {1, 2, 3, 4});
}

// q, k, v of two layers' rows each, packed: one product, one bias.
TEST(ParallelLinear, PacksTakeOneBias) {
  const at::Tensor x0 = random({4, 6}, 1);
  const at::Tensor q = random({8, 6}, 2), k = random({4, 6}, 3);
  const at::Tensor q_bias = random({8}, 4), k_bias = random({4}, 5);
  const at::Tensor dq = random({4, 8}, 6), dk = random({4, 4}, 7);
  on_all_groups([&](const TensorParallel& tp) {
    const auto pack = [&](const at::Tensor& a, const at::Tensor& b, int dim) {
      return at::cat({part_of(a, dim, tp.size(), tp.rank()), part_of(b, dim, tp.size(), tp.rank())},
                     dim);
    };
    const Weight weight = weight_of(pack(q, k, 0)), bias = weight_of(pack(q_bias, k_bias, 0));
    const at::Tensor x = leaf(tp.own_tokens(x0));
    const at::Tensor y = column_parallel_linear(x, weight, tp, {}, bias);
    expect_equal(y, pack(at::addmm(q_bias, x0, q.t()), at::addmm(k_bias, x0, k.t()), 1), "y");
    y.backward(pack(dq, dk, 1));
    expect_equal(bias.grad, pack(dq.sum(0), dk.sum(0), 0), "d bias");
    expect_equal(weight.grad, pack(at::mm(dq.t(), x0), at::mm(dk.t(), x0), 0), "d weight");
  });
}

TEST(ParallelLinear, FrozenWeightsAndBiasesHaveNoGradient) {
  on_all_groups([&](const TensorParallel& tp) {
    const Weight frozen{random({4, 6}, 2), {}}, bias{random({4}, 3), {}};
    const at::Tensor x0 = random({4, 6}, 1);
    const at::Tensor x = leaf(tp.own_tokens(x0));
    const at::Tensor y = column_parallel_linear(x, frozen, tp, {}, bias);
    y.backward(at::ones_like(y));
    expect_equal(x.grad(), tp.size() * tp.own_tokens(frozen.value.sum(0).expand({4, 6})), "dx");
  });
}

TEST(ParallelLinear, ARecipeMakesTheRanksOwnTokens) {
  const at::Tensor x0 = random({8, 6}, 1), w = random({4, 6}, 2);
  on_all_groups([&](const TensorParallel& tp) {
    const at::Tensor own = tp.own_tokens(x0);
    const Weight kept = weight_of(w), made = weight_of(w);
    column_parallel_linear(leaf(own), kept, tp).sum().backward();
    column_parallel_linear(leaf(own), made, tp, [&] { return own; }).sum().backward();
    EXPECT_TRUE(at::equal(kept.grad, made.grad));
  });
}

// No hop of a ring rounds: sixteen halves that lie below the last bit of the sum are not lost.
TEST(ParallelLinear, RingsAddHalvesInFp32) {
  run_thread_ranks(4, [](Communicator& group) {
    const TensorParallel tp(group, {.sequence_parallel = true, .overlap = TpOverlap::kRing});
    const double own = group.rank() == 3 ? 256.0 : 0.5;
    const Weight w = weight_of(at::full({1, 1}, own, at::kBFloat16));
    const at::Tensor y = row_parallel_linear(at::ones({4, 1}, at::kBFloat16), w, tp);
    EXPECT_EQ(y.item<float>(), 258.0F) << "256 + 3 x 0.5, rounded once";
  });
}

TEST(ParallelLinear, TellsItsTime) {
  run_thread_ranks(2, [](Communicator& group) {
    TpTime time;
    const TensorParallel tp(group, {.overlap = TpOverlap::kOff, .time = &time});
    const Weight w = weight_of(at::ones({2, 2}));
    row_parallel_linear(at::ones({4, 2}), w, tp);
    EXPECT_GT(time.operations, 0.0);
    EXPECT_GT(time.waited, 0.0);
  });
  EXPECT_EQ((TpTime{2.0, 0.5}.hidden()), 0.75);
  EXPECT_EQ((TpTime{2.0, 2.5}.hidden()), 0.0);
  EXPECT_EQ(TpTime{}.hidden(), 0.0);
}

// Row after row, a bf16 sum stops counting at 256.
TEST(ParallelLinear, BiasGradientsOfHalvesAddUpInFp32) {
  run_thread_ranks(1, [](Communicator& group) {
    const Weight w = weight_of(at::ones({1, 1}, at::kBFloat16));
    const Weight bias = weight_of(at::zeros({1}, at::kBFloat16));
    const at::Tensor x = leaf(at::ones({1024, 1}, at::kBFloat16));
    column_parallel_linear(x, w, group, {}, bias).sum().backward();
    EXPECT_EQ(bias.grad.item<float>(), 1024.0F);
  });
}

TEST(ParallelLinear, TokensThatDoNotDivideAreRefused) {
  run_thread_ranks(2, [](Communicator& group) {
    const TensorParallel tp(group, {.sequence_parallel = true});
    const Weight w = weight_of(at::ones({2, 2}));
    try {
      row_parallel_linear(at::ones({3, 2}), w, tp);
      FAIL() << "3 tokens went over 2 ranks";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("the 3 tokens of a micro-batch over 2 ranks"),
                std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace tessera
