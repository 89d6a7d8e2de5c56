#include "base/files/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/files/files.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Quick, but for a wait that only a mistake leads to.
constexpr OwnerFile::Times kQuick{.beat = milliseconds(20),
                                  .silent = milliseconds(300),
                                  .turn = milliseconds(300),
                                  .look = milliseconds(20),
                                  .settle = milliseconds(200)};
constexpr OwnerFile::Times kNever{.beat = milliseconds(20), .silent = std::chrono::hours(1)};

class Owners : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME",
                             "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"})
      unsetenv(name);
  }

  // This process as one of a turn of a Slurm job.
  static void be(const char* job, const char* restarts) {
    setenv("SLURM_JOB_ID", job, 1);
    setenv("SLURM_RESTART_COUNT", restarts, 1);
  }

  void leave(const ProcessIdentity& owner) { write_file_atomic(file_, owner.to_text() + "\n"); }

  // What a newcomer is told; "in" if it gets in.
  std::string come(OwnerFile::Times times) {
    waits_ = 0;
    const std::string error = error_of([&] {
      const OwnerFile owner(
          file_, "the folder is taken", [&](const std::string&) { ++waits_; }, times);
      EXPECT_EQ(ProcessIdentity::parse(read_small_file(file_, 4096)).pid, getpid());
    });
    if (error != "no error") return error;
    EXPECT_FALSE(fs::exists(file_)) << "it is removed at the end";
    return "in";
  }

  // The message of any Error that `body` throws.
  static std::string told(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  TemporaryFolder folder_;
  fs::path file_ = folder_ / ".owner";
  int waits_ = 0;
};

TEST_F(Owners, OneProcessAtATime) {
  const OwnerFile first(file_, "the folder is taken", {}, kNever);
  const std::string refused = come(kNever);
  EXPECT_TRUE(contains(refused, "the folder is taken (host ")) << refused;
  EXPECT_TRUE(contains(refused, "process " + std::to_string(getpid()))) << refused;
  EXPECT_EQ(waits_, 0);
  EXPECT_TRUE(fs::exists(file_));
  first.check();
}

// On this machine nobody waits: a process is there or it is not.
TEST_F(Owners, AnEndedProcessOfThisMachineIsFollowedAtOnce) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::ofstream(file_) << ProcessIdentity::own().to_text() << "\n";
    _exit(0);
  }
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  const std::string record = read_small_file(file_, 4096);
  EXPECT_EQ(come(kNever), "in") << "ended, though nobody has asked for its exit code";
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  write_file_atomic(file_, record);
  EXPECT_EQ(come(kNever), "in") << "gone";
  ProcessIdentity earlier = ProcessIdentity::own();  // with this one's number, before it
  earlier.started = "1";
  leave(earlier);
  EXPECT_EQ(come(kNever), "in") << "its number has been given to another process";
}

TEST_F(Owners, AnotherMachineIsWatchedForASignOfLife) {
  ProcessIdentity other = ProcessIdentity::own();
  other.machine = "another boot";
  other.host = "n17";
  leave(other);
  EXPECT_EQ(come(kQuick), "in") << "it is silent";
  EXPECT_EQ(waits_, 1);

  leave(other);
  std::atomic<bool> stop{false};
  std::thread alive([&] {
    for (int beat = 0; !stop; ++beat) {
      std::this_thread::sleep_for(milliseconds(20));
      std::ofstream(file_, std::ios::in | std::ios::out) << other.to_text() << "\n" << beat << "\n";
    }
  });
  const std::string refused = come(kNever);
  stop = true;
  alive.join();
  EXPECT_TRUE(contains(refused, "host n17")) << refused;
}

// A file that its maker has not written yet, or that is damaged, tells nothing: watched as well.
TEST_F(Owners, AFileThatSaysNothingIsWatched) {
  for (const std::string text : {"", "not JSON\n", "{\"pid\": \"x\"}\n"}) {
    std::ofstream(file_) << text;
    EXPECT_EQ(come(kQuick), "in");
    EXPECT_EQ(waits_, 1);
  }
}

// Slurm starts a job again when its last turn has ended, but for a node that it cannot reach: what
// runs there is waited for and then put off, whether it shows signs of life or not.
TEST_F(Owners, ARequeuedJobFollowsItself) {
  be("4711", "1");
  ProcessIdentity before = ProcessIdentity::own();
  before.machine = "another boot";
  be("4711", "2");
  OwnerFile::Times times = kQuick;
  times.silent = std::chrono::hours(1);
  leave(before);
  std::atomic<bool> stop{false};
  std::thread alive([&] {
    std::ofstream file(file_, std::ios::in | std::ios::out);
    for (int beat = 0; !stop; ++beat) {
      std::this_thread::sleep_for(milliseconds(20));
      file.seekp(0);
      file << before.to_text() << "\n" << beat << "\n" << std::flush;
    }
  });
  const std::string told = come(times);
  stop = true;
  alive.join();
  EXPECT_EQ(told, "in");
  EXPECT_EQ(waits_, 1);
  // One that ends meanwhile is followed at once.
  times.turn = std::chrono::hours(1);
  leave(before);
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(50));
    fs::remove(file_);
  });
  EXPECT_EQ(come(times), "in");
  ends.join();
  // Of the same turn it may be a second step of the job that runs beside this one.
  be("4711", "1");
  leave(before);
  EXPECT_EQ(come(kQuick), "in") << "it is silent";
  EXPECT_EQ(waits_, 1);
}

TEST_F(Owners, ATurnIsOfOneJobOfOneCluster) {
  be("12", "0");
  const ProcessIdentity first = ProcessIdentity::own();
  EXPECT_FALSE(ProcessIdentity::own().is_later_turn_of(first));
  be("12", "1");
  const ProcessIdentity second = ProcessIdentity::own();
  EXPECT_TRUE(second.is_later_turn_of(first));
  EXPECT_FALSE(first.is_later_turn_of(second));
  EXPECT_TRUE(contains(second.describe(), ", job 12, restart 1")) << second.describe();
  EXPECT_TRUE(second.is_later_turn_of(ProcessIdentity::parse(first.to_text())));
  be("13", "1");
  EXPECT_FALSE(ProcessIdentity::own().is_later_turn_of(first)) << "another job";
  be("12", "1");
  setenv("SLURM_CLUSTER_NAME", "east", 1);
  EXPECT_FALSE(ProcessIdentity::own().is_later_turn_of(first)) << "another cluster's job 12";
  setenv("SLURM_ARRAY_JOB_ID", "10", 1);
  setenv("SLURM_ARRAY_TASK_ID", "3", 1);
  EXPECT_EQ(ProcessIdentity::own().job, "10_3");
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_ARRAY_JOB_ID");
  EXPECT_FALSE(ProcessIdentity::own().is_later_turn_of(first)) << "no job at all";
}

TEST_F(Owners, OfSeveralNewcomersOneGetsIn) {
  for (int round = 0; round < 3; ++round) {
    ProcessIdentity ended = ProcessIdentity::own();
    ended.started = "1";
    leave(ended);
    std::atomic<int> in{0}, refused{0}, left{0};
    std::vector<std::thread> newcomers;
    for (int i = 0; i < 4; ++i)
      newcomers.emplace_back([&] {
        try {
          const OwnerFile owner(file_, "taken", {}, kQuick);
          ++in;
          while (in + refused < 4) std::this_thread::yield();  // nobody leaves before all have come
        } catch (const UserError&) {
          ++refused;
        }
        ++left;
      });
    for (std::thread& newcomer : newcomers) newcomer.join();
    EXPECT_EQ(in, 1);
    EXPECT_EQ(refused, 3);
  }
}

// A process that was stopped for long finds out that it has lost the folder, and leaves it alone.
TEST_F(Owners, WhoHasLostTheFolderIsTold) {
  ProcessIdentity other = ProcessIdentity::own();
  {
    const OwnerFile owner(file_, "taken", {}, kQuick);
    leave(other);
    const auto lost = [&] {
      try {
        owner.check();
      } catch (const Error& error) {
        return contains(error.what(), "another process's now");
      }
      return false;
    };
    for (int i = 0; i < 500 && !lost(); ++i) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_TRUE(lost());
  }
  EXPECT_EQ(ProcessIdentity::parse(read_small_file(file_, 4096)).token, other.token);
}

TEST_F(Owners, ALockNamesWhoHoldsIt) {
  const FolderLock lock(folder_.path());
  EXPECT_EQ(lock.warning(), "");
  lock.check();
  const std::string refused = error_of([&] { const FolderLock second(folder_.path()); });
  EXPECT_TRUE(contains(refused, folder_.path().string() + " is in use by another run (host "))
      << refused;
  EXPECT_TRUE(contains(refused, "process " + std::to_string(getpid()))) << refused;
}

// The old process's lock may live for ever: on a node that was cut off, or on the file server.
TEST_F(Owners, ALaterTurnTakesALockOver) {
  be("12", "0");
  const FolderLock old(folder_.path());
  be("12", "1");
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  {
    const FolderLock newer(folder_.path(), say, kQuick);
    ASSERT_EQ(said.size(), 2u);
    EXPECT_TRUE(contains(said[0], "held by an earlier turn of this job (host ")) << said[0];
    EXPECT_TRUE(contains(said[1], "takes over")) << said[1];
    EXPECT_TRUE(newer.took_over());
    newer.check();
    EXPECT_TRUE(old.replaced());
    const std::string lost = told([&] { old.check(); });
    EXPECT_TRUE(contains(lost, "has taken") && contains(lost, "job 12, restart 1")) << lost;
    EXPECT_THROW(old.check(), ReplacedError);
    // Whoever comes now meets the newer one's lock, not the old one's.
    be("13", "0");
    const std::string refused = error_of([&] { const FolderLock third(folder_.path()); });
    EXPECT_TRUE(contains(refused, "job 12, restart 1")) << refused;
    // A turn later still puts both off.
    be("12", "2");
    const FolderLock newest(folder_.path(), {}, kQuick);
    EXPECT_THROW(newer.check(), ReplacedError);
    EXPECT_THROW(old.check(), ReplacedError);
    newest.check();
  }
  // The old one's lock is no hindrance, and its end removes nothing of others.
  be("13", "0");
  const FolderLock other(folder_.path());
  EXPECT_FALSE(other.took_over());
  other.check();
  EXPECT_TRUE(old.replaced());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
}

TEST_F(Owners, ALockOfAnEarlierTurnThatEndsIsTakenWithoutReplacing) {
  be("12", "0");
  auto old = std::make_unique<FolderLock>(folder_.path());
  be("12", "1");
  OwnerFile::Times times = kQuick;
  times.turn = std::chrono::hours(1);
  const FolderLock newer(
      folder_.path(), [&](const std::string&) { old.reset(); }, times);
  EXPECT_FALSE(newer.took_over());
  newer.check();
}

TEST_F(Owners, TheWaitForAnEarlierTurnCanBeGivenUp) {
  be("12", "0");
  const FolderLock old(folder_.path());
  be("12", "1");
  OwnerFile::Times times = kQuick;
  times.turn = std::chrono::hours(1);
  const auto give_up = [] { fail("test", "given up"); };
  EXPECT_TRUE(contains(told([&] { const FolderLock newer(folder_.path(), {}, times, give_up); }),
                       "given up"));
  old.check();
}

// Another user's file cannot be written, and so has no name of ours in it.
TEST_F(Owners, ALockWithoutANameKnowsItsFile) {
  be("12", "0");
  const FolderLock lock(folder_.path());
  fs::resize_file(folder_ / ".lock", 0);
  lock.check();
  fs::rename(folder_ / ".lock", folder_ / "away");
  lock.check();  // removed by hand: nobody else has it
  std::ofstream(folder_ / ".lock") << "";
  EXPECT_THROW(lock.check(), ReplacedError);
}

// Another machine may have no locks on this file system: it has left its file.
TEST_F(Owners, ALockMindsTheFileToo) {
  leave(ProcessIdentity::own());
  EXPECT_TRUE(contains(error_of([&] { const FolderLock lock(folder_.path()); }), "in use"));
  fs::remove(file_);
  ProcessIdentity ended = ProcessIdentity::own();
  ended.started = "1";
  leave(ended);
  const FolderLock lock(folder_.path());
  EXPECT_FALSE(fs::exists(file_));
}

}  // namespace
}  // namespace tessera
