#include "base/files/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/error.h"
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
                                  .look = milliseconds(20),
                                  .settle = milliseconds(200)};
constexpr OwnerFile::Times kNever{.beat = milliseconds(20), .silent = std::chrono::hours(1)};

class Owners : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_RESTART_COUNT");
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

// Slurm starts a job again when its last turn has ended, on whatever machine.
TEST_F(Owners, ARequeuedJobFollowsItself) {
  ProcessIdentity before = ProcessIdentity::own();
  before.machine = "another boot";
  before.job = "4711";
  before.restarts = 1;
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("SLURM_RESTART_COUNT", "2", 1);
  leave(before);
  EXPECT_EQ(come(kNever), "in");
  // Of the same turn it may be a second step of the job that runs beside this one.
  setenv("SLURM_RESTART_COUNT", "1", 1);
  leave(before);
  EXPECT_EQ(come(kQuick), "in");
  EXPECT_EQ(waits_, 1);
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
