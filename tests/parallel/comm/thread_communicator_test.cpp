#include "parallel/comm/shm/thread_communicator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <mutex>
#include <set>
#include <stdexcept>

#include "parallel/comm/failure_cases.h"

namespace tessera {
namespace {

using namespace testing;

class ThreadRanks : public ::testing::TestWithParam<int> {
 protected:
  void run(void (*body)(Communicator&)) { run_thread_ranks(GetParam(), body); }
};

TEST_P(ThreadRanks, AllGather) {
  run(all_gather_case);
}
TEST_P(ThreadRanks, ReduceScatter) {
  run(reduce_scatter_case);
}
TEST_P(ThreadRanks, AllReduce) {
  run(all_reduce_case);
}
TEST_P(ThreadRanks, Broadcast) {
  run(broadcast_case);
}
TEST_P(ThreadRanks, AllToAll) {
  run(all_to_all_case);
}
TEST_P(ThreadRanks, SendAndRecv) {
  run(send_recv_case);
}
TEST_P(ThreadRanks, Split) {
  run(split_case);
}
TEST_P(ThreadRanks, TwoGroupsOverlap) {
  run(overlap_case);
}
TEST_P(ThreadRanks, StorageMayMove) {
  run(moved_storage_case);
}
TEST_P(ThreadRanks, DroppedWorksRun) {
  run(dropped_work_case);
}
TEST_P(ThreadRanks, LongSequence) {
  run(sequence_case);
}
TEST_P(ThreadRanks, RanksHaveTheirWorldsNumbers) {
  run(rank_names_case);
}
TEST_P(ThreadRanks, RecordSaysWhatRunsAndWhoIsMissing) {
  run(record_case);
}
TEST_P(ThreadRanks, ArgumentsAreChecked) {
  run(argument_case);
}

// The decorator changes nothing for calls that agree.
TEST_P(ThreadRanks, CheckedPassesGoodCalls) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    const auto checked = make_checked(world.split(0, world.rank(), "checked"));
    EXPECT_EQ(checked->size(), world.size());
    split_case(*checked);
    moved_storage_case(*checked);
    overlap_case(*checked);
    send_recv_case(*checked);
    sequence_case(*checked);
    argument_case(*checked);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, ::testing::Values(1, 2, 3, 4));

TEST(ThreadFailures, CheckedNamesWhoCalledWhat) {
  std::mutex mutex;
  std::set<std::string> texts;
  run_thread_ranks(3, [&](Communicator& world) {
    const auto checked = make_checked(world.split(0, world.rank(), "tp"));
    const auto text = mismatch_case(*checked);
    std::lock_guard lock(mutex);
    texts.insert(text);
  });
  EXPECT_EQ(texts.size(), 1u);  // the same on every rank
}

TEST(ThreadFailures, CheckedSeesAnotherOperation) {
  run_thread_ranks(2, [](Communicator& world) {
    wrong_operation_case(*make_checked(world.split(0, world.rank(), "tp")));
  });
}

TEST(ThreadFailures, CheckedComparesSendWithRecv) {
  run_thread_ranks(3, [](Communicator& world) {
    wrong_pair_case(*make_checked(world.split(0, world.rank(), "tp")));
  });
}

TEST(ThreadFailures, CheckedNamesTheRankThatDoesNotCome) {
  const auto body = [](Communicator& world) {
    const auto checked = make_checked(world.split(0, world.rank(), "tp"));
    if (world.rank() == 1) return;
    const auto text = error_of([&] { checked->broadcast(at::zeros({3}), 0).wait(); });
    expect_contains(text, "tp: broadcast(Float, 3 elements, root 0) #1 on rank ");
    expect_contains(text, "could not be compared");
    expect_contains(text, "rank 1 did not come");
  };
  run_thread_ranks(3, body, {.timeout = std::chrono::milliseconds(300)});
}

TEST(ThreadFailures, TimeoutNamesTheAbsentRank) {
  const auto body = [](Communicator& world) {
    timeout_case(world);
    if (world.rank() != 0) return;
    expect_contains(error_of([&] { world.barrier().wait(); }), "rank 2 did not come");
  };
  run_thread_ranks(3, body, {.timeout = std::chrono::milliseconds(200)});
  run_thread_ranks(2, receive_timeout_case, {.timeout = std::chrono::milliseconds(200)});
}

// Data of another operation are not taken for what was asked for; all ranks say whose fault it is.
TEST(ThreadFailures, ALeftOutCollectiveIsNamed) {
  const std::string texts[] = {
      "[comm] tp: ranks disagree: rank 2 called all_reduce(max, Float, 8 elements) as collective "
      "#2; the others called all_gather(Float, 8 elements a slice) as collective #2; all",
      "[comm] tp: ranks disagree: rank 2 called all_reduce(sum, Float, 3000 elements) as "
      "collective #2; the others called all_reduce(sum, Float, 6000 elements) as collective #2"};
  run_thread_ranks(3, [&](Communicator& world) {
    const auto tp = world.split(0, world.rank(), "tp");
    expect_contains(left_out_case(*tp), texts[0]);
  });
  run_thread_ranks(3, [&](Communicator& world) {
    const auto tp = world.split(0, world.rank(), "tp");
    expect_contains(other_size_case(*tp), texts[1]);
  });
}

// In a group whose numbers are not the world's, with the operation's root.
TEST(ThreadFailures, MessagesNameWorldRanks) {
  const auto body = [](Communicator& world) {
    const auto pair = world.split(world.rank() / 2, world.rank(), "pair");
    if (world.rank() == 3) return;
    const auto text = error_of([&] { pair->broadcast(at::zeros({3}), 1).wait(); });
    if (world.rank() != 2) return;
    expect_contains(text, "pair: broadcast(Float, 3 elements, root 3) #1 on rank 2 timed out");
    expect_contains(text, "rank 3 did not come");
    const GroupView view = view_of(world, "pair");
    EXPECT_EQ(view.ranks, (std::vector<int>{2, 3}));
    EXPECT_EQ(view.done, 0);  // one that failed is not done
    EXPECT_EQ(view.last.back().missing, std::vector<int>{3});
  };
  run_thread_ranks(4, body, {.timeout = std::chrono::milliseconds(300)});
}

TEST(ThreadFailures, FileWorkHasALimitOfItsOwn) {
  run_thread_ranks(3, late_case, {.timeout = std::chrono::milliseconds(300)});
  // Below the decorator, whose own thread passes operations on, patience arrives, and ends.
  run_thread_ranks(
      3, [](Communicator& world) { late_case(*make_checked(world.split(0, world.rank(), "tp"))); },
      {.timeout = std::chrono::milliseconds(300)});
  run_thread_ranks(2,
                   [](Communicator& world) {
                     if (world.rank() == 1) return;
                     const FileWork file_work;
                     expect_contains(
                         error_of([&] { world.barrier().block(); }),
                         "timed out after 200 ms (the limit of file work): rank 1 did not come");
                   },
                   {.file_timeout = std::chrono::milliseconds(200)});
}

// A process of two ranks that is stopped for longer than the limit and goes on.
TEST(ThreadFailures, TimeInWhichTheProcessIsStoppedDoesNotCount) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int code = 0;
    try {
      run_thread_ranks(2,
                       [&](Communicator& world) {
                         char byte;
                         if (world.rank() == 1 && read(pipe_ends[0], &byte, 1) != 1)
                           fail("test", "no byte");
                         world.barrier().block();
                       },
                       {.timeout = std::chrono::milliseconds(1000)});
    } catch (const Error&) {
      code = 1;
    }
    _exit(code);
  }
  const auto sleep = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  sleep(200);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  sleep(1500);
  ASSERT_EQ(kill(child, SIGCONT), 0);
  sleep(100);  // rank 0 looks at its limit before rank 1 comes
  ASSERT_EQ(write(pipe_ends[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ThreadFailures, AbortWakesWaitingPeers) {
  run_thread_ranks(3, abort_case);
}

TEST(ThreadFailures, AbortReachesSplitsAndGroupsOfOne) {
  run_thread_ranks(2, [](Communicator& world) {
    const auto pair = world.split(0, 0, "pair");
    const auto alone = world.split(world.rank(), 0, "alone");
    world.barrier().wait();
    if (world.rank() == 0) pair->abort("enough");
    expect_contains(error_of([&] { pair->barrier().wait(), pair->barrier().wait(); }), "enough");
    expect_contains(error_of([&] { alone->barrier().wait(); }), "enough");
  });
}

// The first error is thrown again, as its own type; peers that wait are freed by it.
TEST(ThreadFailures, FirstErrorIsRethrown) {
  std::atomic<int> aborted{0};
  try {
    run_thread_ranks(4, [&](Communicator& world) {
      if (world.rank() == 2) throw std::out_of_range("rank 2 had enough");
      try {
        world.barrier().wait();
      } catch (const Error& e) {
        expect_contains(e.what(), "rank 2 failed: rank 2 had enough");
        ++aborted;
        throw;
      }
    });
    FAIL() << "no error";
  } catch (const std::out_of_range& e) {
    EXPECT_STREQ(e.what(), "rank 2 had enough");
  }
  EXPECT_EQ(aborted.load(), 3);
}

// A rank that unwinds with operations under way gets away from its communicators at once.
TEST(ThreadFailures, UnwindingDoesNotWait) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(run_thread_ranks(2,
                                [](Communicator& world) {
                                  const auto pair = world.split(0, 0, "pair");
                                  if (world.rank() == 1) return;
                                  pair->all_reduce(at::ones({10}), ReduceOp::kSum);
                                  throw std::runtime_error("unwinding");
                                }),
               std::runtime_error);
  // The time-out is a minute; this only tells waiting it out from not waiting.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(ThreadFailures, NoRanksIsAnError) {
  expect_contains(error_of([] { run_thread_ranks(0, [](Communicator&) {}); }), "0 ranks");
}

}  // namespace
}  // namespace tessera
