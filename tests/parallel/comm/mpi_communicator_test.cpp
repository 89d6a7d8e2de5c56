#include "parallel/comm/mpi/mpi_communicator.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include "base/process/host_name.h"
#include "parallel/comm/failure_cases.h"
#include "support/mpi_test.h"

namespace tessera {
namespace {

using namespace testing;

// The shared-memory path and plain MPI, each as in production and with buffers so small that nearly
// every tensor is split.
struct Path {
  const char* name;
  MpiOptions options;
};

constexpr std::chrono::seconds kPatience{120};
const Path kPaths[] = {
    {"SharedMemory", {.timeout = kPatience, .window_bytes = 256 << 10}},
    {"SharedMemorySmallWindow", {.timeout = kPatience, .window_bytes = 4096}},
    {"Messages", {.timeout = kPatience, .shared_memory = false}},
    {"SmallMessages", {.timeout = kPatience, .shared_memory = false, .message_bytes = 1000}}};

class MpiRanks : public ::testing::TestWithParam<Path> {
 protected:
  std::unique_ptr<Communicator> world(MpiOptions options = GetParam().options) {
    return make_mpi_world(mpi_runtime(), options);
  }
  // The world with a time-out that is meant to be reached.
  std::unique_ptr<Communicator> impatient() {
    MpiOptions options = GetParam().options;
    options.timeout = std::chrono::milliseconds(300);
    return world(options);
  }
  // Failing cases are left one by one: no rank may enter the next before all have left this one.
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }
};

TEST_P(MpiRanks, PassesEveryCase) {
  all_cases(*world());
}

TEST_P(MpiRanks, HasTheRanksOfMpi) {
  int rank = -1, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto all = world();
  EXPECT_EQ(all->rank(), rank);
  EXPECT_EQ(all->size(), size);
  EXPECT_EQ(all->name(), "world");
  EXPECT_TRUE(MpiRuntime::launched());
}

TEST_P(MpiRanks, CheckedPassesGoodCalls) {
  const auto checked = make_checked(world());
  split_case(*checked);
  overlap_case(*checked);
  moved_storage_case(*checked);
  send_recv_case(*checked);
  argument_case(*checked);
}

TEST_P(MpiRanks, CheckedNamesWhoCalledWhat) {
  const auto good = world();
  if (good->size() == 1) return;  // nobody to disagree with
  const auto text = mismatch_case(*make_checked(good->split(0, good->rank(), "tp")));
  // The same on every rank.
  auto mine = at::zeros({2000}, at::kByte);
  std::copy(text.begin(), text.end(), mine.mutable_data_ptr<uint8_t>());
  auto first = mine.clone();
  good->broadcast(first, 0).wait();
  EXPECT_TRUE(same(first, mine)) << text;
}

TEST_P(MpiRanks, CheckedSeesAnotherOperation) {
  const auto checked = make_checked(world());
  if (checked->size() == 2) wrong_operation_case(*checked);
  if (checked->size() > 2) wrong_pair_case(*checked);
}

TEST_P(MpiRanks, TimeoutOfARankThatNeverComes) {
  const auto group = impatient();
  if (group->size() == 1) return;
  timeout_case(*group);
  MPI_Barrier(MPI_COMM_WORLD);
  if (group->size() == 2) receive_timeout_case(*impatient());
}

TEST_P(MpiRanks, HostsAreNamed) {
  const auto all = world();
  for (int rank = 0; rank < all->size(); ++rank) EXPECT_EQ(all->host_of(rank), host_name());
}

// Through shared memory all ranks see at the next operation who left one out; with messages the
// others wait for that one, since nothing that it sends is for their operation.
TEST_P(MpiRanks, ALeftOutCollectiveIsNamed) {
  const bool memory = GetParam().options.shared_memory;
  const auto all = memory ? world() : impatient();
  if (all->size() < 3) return;  // nobody can say which of two is wrong
  const int last = all->size() - 1;
  const auto expect = [&](const std::string& text) {
    if (memory)
      expect_contains(text, "ranks disagree: " + all->rank_text(last) + " called all_reduce(");
    else if (all->rank() != last)
      expect_contains(text, all->rank_text(last) + " sent nothing for it");
  };
  expect(left_out_case(*all));
  MPI_Barrier(MPI_COMM_WORLD);
  const auto again = memory ? world() : impatient();
  expect(other_size_case(*again));
}

TEST_P(MpiRanks, FileWorkHasALimitOfItsOwn) {
  const auto group = impatient();
  if (group->size() > 1) late_case(*group);
}

TEST_P(MpiRanks, AbortWakesWaitingPeers) {
  abort_case(*world());
}

// A new world works after others have failed.
TEST_P(MpiRanks, WorksAfterFailures) {
  const auto all = world();
  all->barrier().wait();
  all_reduce_case(*all);
}

TEST_P(MpiRanks, OptionsAreChecked) {
  MpiOptions options = GetParam().options;
  options.message_bytes = int64_t{1} << 40;
  expect_contains(error_of([&] { world(options); }), "message_bytes is 1099511627776");
  options = GetParam().options;
  options.window_bytes = 100;
  if (options.shared_memory && world()->size() > 1)
    expect_contains(error_of([&] { world(options); }), "a window of 100 bytes is too small");
}

TEST_P(MpiRanks, SharedMemoryMustFit) {
  MpiOptions options = GetParam().options;
  options.window_bytes = int64_t{1} << 45;
  if (!options.shared_memory || world()->size() == 1) return;
  const std::string error = error_of([&] { world(options); });
  expect_contains(error, "world: ");
  expect_contains(error, "bytes of shared memory are needed");
  expect_contains(error, "/dev/shm has only");
  expect_contains(error, "or let ranks exchange messages");
}

INSTANTIATE_TEST_SUITE_P(Paths, MpiRanks, ::testing::ValuesIn(kPaths),
                         [](const auto& path) { return path.param.name; });

}  // namespace
}  // namespace tessera
