#include "parallel/tensor_parallel/first_tokens.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/tensor_parallel/tp_testing.h"

namespace tessera::testing {
namespace {

// 4 samples of 3 and of 5 tokens, and 8 of 1 token: ranks whose rows begin within a sample, and
// hold one start, several or none.
TEST(FirstTokens, AreThoseOfAllRanksAndTheirGradientGoesBack) {
  struct Case {
    int64_t samples, length;
  };
  for (const Case c : {Case{4, 3}, {4, 5}, {8, 1}, {1, 8}}) {
    const at::Tensor x = random({c.samples * c.length, 6}, 1);
    const at::Tensor expected = x.view({c.samples, c.length, 6}).select(1, 0);
    const at::Tensor dy = random({c.samples, 6}, 2);
    at::Tensor dx = at::zeros_like(x);
    dx.view({c.samples, c.length, 6}).select(1, 0).copy_(dy);
    on_all_groups([&](const TensorParallel& tp) {
      const at::Tensor own = leaf(tp.own_tokens(x));
      const at::Tensor y = first_tokens(own, c.samples, tp);
      EXPECT_TRUE(at::equal(y.detach(), expected));
      y.backward(dy);
      EXPECT_TRUE(at::equal(own.grad(), tp.own_tokens(dx)));
    });
  }
}

TEST(FirstTokens, RefusesSamplesOfUnequalLength) {
  run_thread_ranks(1, [&](Communicator& group) {
    try {
      first_tokens(random({10, 2}, 1), 3, TensorParallel(group));
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("10 tokens of 3 samples"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace tessera::testing
