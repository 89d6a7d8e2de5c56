#include "parallel/comm/core/self_communicator.h"

#include <gtest/gtest.h>

#include "parallel/comm/cases.h"

namespace tessera {
namespace {

using namespace testing;

TEST(SelfCommunicator, PassesEveryCase) {
  const auto world = make_self_communicator();
  EXPECT_EQ(world->name(), "self");
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->rank(), 0);
  all_cases(*world);
}

TEST(SelfCommunicator, HasANameAndARecordWithoutGroups) {
  const auto world = make_self_communicator("one");
  EXPECT_EQ(world->world_rank(0), 0);
  EXPECT_EQ(world->host_of(0), "");
  world->barrier();
  EXPECT_TRUE(world->record()->view().empty());
}

TEST(SelfCommunicator, HasNoPeers) {
  const auto world = make_self_communicator("one");
  expect_contains(error_of([&] { world->send(at::zeros({1}), 1); }),
                  "one: send: destination 1 is no rank; the group has ranks 0 to 0");
  expect_contains(error_of([&] { world->recv(at::zeros({1}), 0); }), "is the receiver itself");
}

TEST(SelfCommunicator, AbortEndsLaterOperationsAlsoOfSplits) {
  const auto world = make_self_communicator("one");
  const auto part = world->split(0, 0, "part");
  world->abort("disk full");
  for (auto* group : {world.get(), part.get()})
    expect_contains(error_of([&] { group->barrier(); }), "was aborted: disk full");
}

}  // namespace
}  // namespace tessera
