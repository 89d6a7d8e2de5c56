// For machines with as many GPUs as ranks (mpirun -n N nccl_communicator_test); built with
// TESSERA_CUDA.
#include "parallel/comm/nccl/nccl_communicator.h"

#include <gtest/gtest.h>

#include "parallel/comm/cases.h"
#include "support/mpi_test.h"

namespace tessera {
namespace {

using namespace testing;

class Nccl : public ::testing::Test {
 protected:
  Nccl() {
    auto host = make_mpi_world(mpi_runtime());
    device_ = Device::cuda(host->rank());
    world_ = make_nccl_world(std::move(host), device_);
  }

  // What rank `rank` holds, on this rank's GPU. Sums of a few are exact in every dtype and order.
  at::Tensor of_rank(int rank, int64_t numel, at::ScalarType dtype) const {
    return filled(numel, dtype, rank).contiguous().to(device_.torch_device());
  }
  at::Tensor empty(int64_t numel, at::ScalarType dtype) const {
    return device_.empty({numel}, dtype);
  }

  Device device_;
  std::unique_ptr<Communicator> world_;
};

TEST_F(Nccl, GathersExchangesAndBroadcasts) {
  const int me = world_->rank(), size = world_->size();
  for (const auto dtype : kDtypes)
    for (const int64_t n : {1, 65, 70001}) {
      const auto gathered = empty(n * size, dtype), swapped = empty(n * size, dtype);
      world_->all_gather(gathered, of_rank(me, n, dtype)).wait();
      world_->all_to_all(swapped, of_rank(me, n * size, dtype)).wait();
      for (int r = 0; r < size; ++r) {
        EXPECT_TRUE(same(gathered.narrow(0, r * n, n), of_rank(r, n, dtype)))
            << label("all_gather", dtype, n);
        EXPECT_TRUE(
            same(swapped.narrow(0, r * n, n), of_rank(r, n * size, dtype).narrow(0, me * n, n)))
            << label("all_to_all", dtype, n);
      }
      const auto sent = of_rank(me, n, dtype);
      world_->broadcast(sent, size - 1).wait();
      EXPECT_TRUE(same(sent, of_rank(size - 1, n, dtype))) << label("broadcast", dtype, n);
    }
}

TEST_F(Nccl, Reduces) {
  const int me = world_->rank(), size = world_->size();
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const int64_t n : {1, 65, 70001}) {
      std::vector<at::Tensor> parts;
      for (int r = 0; r < size; ++r) parts.push_back(of_rank(r, n * size, dtype));
      const auto sum = of_rank(me, n * size, dtype);
      world_->all_reduce(sum, ReduceOp::kSum).wait();
      EXPECT_TRUE(same(sum, expected_sum(parts, dtype))) << label("all_reduce", dtype, n);
      const auto own = [&](at::ScalarType out) {
        return expected_sum(parts, out).narrow(0, me * n, n);
      };
      const auto slice = empty(n, dtype);
      world_->reduce_scatter(slice, of_rank(me, n * size, dtype)).wait();
      EXPECT_TRUE(same(slice, own(dtype))) << label("reduce_scatter", dtype, n);
      if (dtype != at::kBFloat16 && dtype != at::kHalf) continue;
      const auto wide = empty(n, at::kFloat);
      world_->reduce_scatter(wide, of_rank(me, n * size, dtype)).wait();
      EXPECT_TRUE(same(wide, own(at::kFloat))) << label("reduce_scatter to fp32", dtype, n);
    }
}

// The operation waits for the stream that is current when it starts, and wait() orders the one that
// is current then.
TEST_F(Nccl, IsOrderedWithTheCallersStreams) {
  const Stream fills = device_.new_stream(), reads = device_.new_stream();
  for (int round = 0; round < 20; ++round) {
    const auto x = empty(1 << 22, at::kFloat);
    Work work;
    {
      const StreamScope scope(fills);
      for (int i = 0; i < 20; ++i) x.fill_(i);
      x.fill_(round);
      work = world_->all_reduce(x, ReduceOp::kSum);
    }
    const StreamScope scope(reads);
    work.wait();
    const auto right = (x == round * world_->size()).all();
    EXPECT_TRUE(right.item<bool>()) << "round " << round;
  }
}

TEST_F(Nccl, PartsAreGroupsAndCpuTensorsGoThroughTheHost) {
  const int me = world_->rank();
  const auto part = world_->split(me % 2, -me, "part");
  const auto count = at::ones({1}, at::kLong);
  part->all_reduce(count, ReduceOp::kSum).block();
  EXPECT_EQ(count.item<int64_t>(), part->size());
  const auto on_gpu = at::ones({1}, count.options().device(device_.torch_device()));
  part->all_reduce(on_gpu, ReduceOp::kSum).block();
  EXPECT_EQ(on_gpu.item<int64_t>(), part->size());
  part->barrier().block();
  EXPECT_EQ(part->device(), device_.torch_device());
}

TEST_F(Nccl, AbortEndsLaterOperations) {
  world_->barrier().block();
  world_->abort("disk full");
  const auto x = empty(4, at::kFloat);
  expect_contains(error_of([&] { world_->all_reduce(x, ReduceOp::kSum); }),
                  "was aborted: disk full");
}

}  // namespace
}  // namespace tessera
