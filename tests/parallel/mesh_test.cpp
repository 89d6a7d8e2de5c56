#include "parallel/mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/comm/core/operation.h"
#include "parallel/comm/shm/thread_communicator.h"

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

// A group whose ranks are said to lie on several nodes.
class FarCommunicator final : public Communicator {
 public:
  explicit FarCommunicator(std::unique_ptr<Communicator> inner)
      : Communicator(inner->rank(), inner->size(), inner->name()), inner_(std::move(inner)) {}

  bool on_one_node() const override { return false; }
  Work start(Operation op) override { return inner_->start(std::move(op)); }
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<FarCommunicator>(inner_->split(color, key, std::move(name)));
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return inner_->abort_state(); }

 private:
  std::unique_ptr<Communicator> inner_;
};

TEST(Mesh, ATpGroupThatStraddlesNodesIsRefusedUnlessAllowed) {
  run_thread_ranks(4, [](Communicator& world) {
    const auto far = [&] {
      return std::make_unique<FarCommunicator>(world.split(0, world.rank(), "world"));
    };
    try {
      Mesh mesh({1, 2, 2}, far());
      FAIL() << "no error";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("allow_tp_across_nodes"), std::string::npos);
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
