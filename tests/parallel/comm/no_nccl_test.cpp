#include <gtest/gtest.h>

#include "parallel/comm/cases.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "support/gpu_tensor.h"

namespace tessera {
namespace {

using namespace testing;

TEST(NoNccl, AWorldOfGpusIsAUserErrorThatSaysHowToBuildOne) {
  EXPECT_THROW(make_nccl_world(make_self_communicator(), Device()), UserError);
  expect_contains(error_of([] { make_nccl_world(make_self_communicator("w"), Device()); }),
                  "[comm] w: communication between GPUs needs NCCL, without which this program was "
                  "built; configure with `cmake --preset cuda`");
}

TEST(NoNccl, AGroupOfTheHostRefusesTensorsOfAGpu) {
  const auto world = make_self_communicator("w");
  EXPECT_EQ(world->device(), at::Device(at::kCPU));
  const auto gpu = pretended_gpu_tensor(4);
  expect_contains(error_of([&] { world->all_reduce(gpu, ReduceOp::kSum); }),
                  "w: all_reduce: `tensor` lies on cuda:0; this communicator takes tensors of cpu");
  expect_contains(error_of([&] { world->all_gather(at::zeros({4}), gpu); }), "`in` lies on cuda:0");
}

}  // namespace
}  // namespace tessera
