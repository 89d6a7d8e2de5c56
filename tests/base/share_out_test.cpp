#include "base/process/share_out.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/process/byte_progress.h"

namespace tessera {
namespace {

TEST(ShareOut, EachItemIsDoneOnceByAtMostSoManyThreads) {
  for (const int threads : {1, 2, 7}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{100}}) {
      std::vector<std::atomic<int>> done(count);
      std::atomic<int> workers{0};
      share_out(count, threads, [&]() -> Worker {
        ++workers;
        return [&](size_t i) { ++done[i]; };
      });
      for (const auto& times : done) EXPECT_EQ(times, 1);
      EXPECT_LE(workers, std::max(1, std::min(threads, static_cast<int>(count))));
    }
  }
}

// Whatever the threads and their order: item 3 is slow to fail, the items above it are quick.
TEST(ShareOut, TheErrorOfTheLowestItemIsThrown) {
  for (const int threads : {1, 2, 4, 8}) {
    const auto work = [&] {
      share_out(20, threads, []() -> Worker {
        return [](size_t i) {
          if (i < 3) return;
          if (i == 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          throw std::runtime_error(std::to_string(i));
        };
      });
    };
    try {
      work();
      FAIL() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "3") << threads;
    }
  }
}

TEST(ShareOut, AThreadThatCannotPrepareIsAnError) {
  EXPECT_THROW(share_out(4, 2, []() -> Worker { throw std::runtime_error("no file"); }),
               std::runtime_error);
}

TEST(ShareOut, CoresAreThoseOfTheAffinityMask) {
  EXPECT_GE(usable_cores(), 1);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(ByteProgress, CountsTheBytesOfAllThreads) {
  std::mutex mutex;
  std::set<int64_t> seen;
  ByteProgress progress(300, [&](int64_t done, int64_t total) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(total, 300);
    EXPECT_TRUE(seen.insert(done).second) << done;
  });
  share_out(30, 4, [&]() -> Worker { return [&](size_t) { progress.add(10); }; });
  EXPECT_EQ(seen.size(), 30u);
  EXPECT_EQ(*seen.rbegin(), 300);
  ByteProgress(1, nullptr).add(1);  // nobody looks
}

}  // namespace
}  // namespace tessera
