#include "parallel/mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/far_communicator.h"

namespace tessera {
namespace {

TEST(Mesh, TpIsFastestThenDpShard) {
  run_thread_ranks(6, [](Communicator& world) {
    Mesh mesh({1, 3, 2}, world.split(0, world.rank(), "world"));
    EXPECT_EQ(mesh.tp_rank(), world.rank() % 2);
    EXPECT_EQ(mesh.dp_shard_rank(), world.rank() / 2);
    EXPECT_EQ(mesh.tp_group().size(), 2);
    EXPECT_EQ(mesh.tp_group().rank(), mesh.tp_rank());
    EXPECT_EQ(mesh.gather_group().size(), 3);
    EXPECT_EQ(mesh.gather_group().rank(), mesh.dp_shard_rank());

    at::Tensor sum = at::full({1}, static_cast<double>(world.rank()), at::kDouble);
    mesh.tp_group().all_reduce(sum, ReduceOp::kSum).wait();
    EXPECT_EQ(sum.item<double>(), 4.0 * (world.rank() / 2) + 1.0);
    sum.fill_(static_cast<double>(world.rank()));
    mesh.reduce_group().all_reduce(sum, ReduceOp::kSum).wait();
    EXPECT_EQ(sum.item<double>(), 6.0 + 3.0 * (world.rank() % 2));
  });
}

TEST(Mesh, ATpGroupThatStraddlesNodesIsRefusedUnlessAllowed) {
  run_thread_ranks(4, [](Communicator& world) {
    const auto far = [&] {
      return std::make_unique<FarCommunicator>(world.split(0, world.rank(), "world"));
    };
    try {
      Mesh mesh({1, 2, 2}, far());
      FAIL() << "no error";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("straddles nodes (tp 2)"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("or allow"), std::string::npos);
    }
    EXPECT_EQ(Mesh({1, 2, 2}, far(), /*allow_tp_across_nodes=*/true).tp(), 2);
  });
}

TEST(Mesh, AWorldOfAnotherSizeIsAnError) {
  run_thread_ranks(2, [](Communicator& world) {
    try {
      Mesh mesh({1, 3, 2}, world.split(0, world.rank(), "world"));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("2 ranks cannot form a mesh"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace tessera
