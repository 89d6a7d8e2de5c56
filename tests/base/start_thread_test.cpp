#include "base/process/start_thread.h"

#include <gtest/gtest.h>

#include <latch>
#include <vector>

#include "base/error.h"
#include "support/no_room_for_threads.h"

namespace tessera {
namespace {

TEST(StartThread, RunsTheBody) {
  int value = 0;
  start_thread("a test", [&value] { value = 7; }).join();
  EXPECT_EQ(value, 7);
}

TEST(StartThread, OneThatCannotBeMadeIsAnErrorThatNamesTheLimits) {
  std::string message;
  {
    const testing::NoRoomForThreads no_room;
    std::latch end(1);
    std::vector<std::thread> threads;
    try {
      for (int i = 0; i < 4; ++i) threads.push_back(start_thread("a test", [&end] { end.wait(); }));
    } catch (const Error& error) {
      message = error.what();
    }
    end.count_down();
    for (std::thread& thread : threads) thread.join();
  }
  for (const char* part :
       {"[threads] cannot make a thread for a test: Resource temporarily unavailable; ",
        " processes and threads of this user (ulimit -u), address space ",
        " (ulimit -v), stack of each thread ", "use fewer run.threads or ranks"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\nin: " << message;
}

}  // namespace
}  // namespace tessera
