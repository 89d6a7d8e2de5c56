#include "training/start/threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "support/no_room_for_threads.h"

namespace tessera {
namespace {

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// First, before LibTorch has threads. Where nothing looks, LibTorch's pool waits for them for ever.
TEST(Threads, ThoseThatCannotBeMadeAreAnError) {
  const auto world = make_self_communicator();
  const int before = at::get_num_threads();
  const testing::NoRoomForThreads no_room;
  const std::string message = message_of([&] { start_threads(8, *world); });
  EXPECT_NE(message.find("cannot make a thread for computation (run.threads): "), std::string::npos)
      << message;
  EXPECT_EQ(at::get_num_threads(), before);
}

// A rank that fails to start is an error of all, not a wait of those that run.
TEST(Threads, RanksThatCannotBeMadeEndTheOthers) {
  const testing::NoRoomForThreads no_room;
  const std::string message =
      message_of([] { run_thread_ranks(4, [](Communicator& world) { world.barrier().wait(); }); });
  EXPECT_NE(message.find("cannot make a thread for a rank: "), std::string::npos) << message;
}

TEST(Threads, AreAsManyAsAskedFor) {
  run_thread_ranks(2, [](Communicator& world) { start_threads(3, world); });
  at::set_num_threads(1);
  start_threads(3, *make_self_communicator());
  EXPECT_EQ(at::get_num_threads(), 3);
  start_threads(1, *make_self_communicator());
  EXPECT_EQ(at::get_num_threads(), 1);
}

}  // namespace
}  // namespace tessera
