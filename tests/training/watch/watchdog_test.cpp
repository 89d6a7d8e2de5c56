// Watchdogs of several ranks in one process and in forked ones: what is told, by whom, and that all
// end.
#include "training/watch/watchdog.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/files/files.h"
#include "support/temporary_folder.h"
#include "training/watch/meeting_file.h"
#include "training/watch/socket.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

constexpr const char* kId = "test";

WatchdogSection limits_of(int64_t seconds) {
  return {seconds, seconds, seconds, seconds, seconds};
}

// A rank that is a thread: it may be told of its end, and lives on.
class Rank {
 public:
  Rank(const TemporaryFolder& folder, int rank, int ranks, const WatchdogSection& limits)
      : watchdog_(place, {.limits = limits,
                          .rank = rank,
                          .ranks = ranks,
                          .id = kId,
                          .log_folder = folder / "logs",
                          .tell = [this](const Verdict& verdict) { set(told_, verdict.text); },
                          .end_process = [this](int code) { set(ended_, code); }}),
        world_(
            watchdog_, [] { return std::vector<GroupView>(); },
            [this](const std::string& reason) { set(aborted_, reason); }) {}

  Watchdog& watchdog() { return watchdog_; }
  std::optional<std::string> told() const { return get(told_); }
  std::optional<std::string> aborted() const { return get(aborted_); }
  std::optional<int> ended() const { return get(ended_); }

  Place place;

 private:
  template <typename T, typename U>
  void set(std::optional<T>& member, const U& value) {
    const std::lock_guard lock(mutex_);
    member = value;
  }
  template <typename T>
  std::optional<T> get(const std::optional<T>& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }

  mutable std::mutex mutex_;
  std::optional<std::string> told_, aborted_;
  std::optional<int> ended_;
  Watchdog watchdog_;
  Watchdog::World world_;
};

// Waits for what must come, far longer than it takes.
bool comes(const std::function<bool()>& what) {
  for (int i = 0; i < 1500; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return false;
}

#define EXPECT_PART(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class Watched : public testing::Test {
 protected:
  // Rank `rank` as a process of its own, at `phase`. It gets on, but makes no sound.
  pid_t fork_rank(int rank, int ranks, Phase phase, const WatchdogSection& limits) {
    const pid_t child = fork();
    if (child != 0) return children_.emplace_back(child);
    Place place;
    place.enter(phase, 7);
    Watchdog watchdog(place, {.limits = limits,
                              .rank = rank,
                              .ranks = ranks,
                              .id = kId,
                              .log_folder = folder_ / "logs",
                              .tell = [](const Verdict&) {},
                              .end_process = [](int code) { _exit(code); }});
    for (;;) {
      std::this_thread::sleep_for(milliseconds(20));
      place.advance();
    }
  }

  ~Watched() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  // All ranks are connected: rank 0 hears of all.
  static void wait_for_all(Rank& rank_0) {
    EXPECT_TRUE(comes([&] { return rank_0.watchdog().warning().empty(); }))
        << rank_0.watchdog().warning();
  }

  std::string dump() const {
    for (const auto& file : list_folder(folder_ / "logs"))
      if (file.filename().string().starts_with("hang-")) return read_small_file(file, 1 << 20);
    return "";
  }

  TemporaryFolder folder_;
  std::vector<pid_t> children_;
};

TEST_F(Watched, ARankThatStandsStillIsNamedAndAllEnd) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < 3; ++i) {
    ranks.push_back(std::make_unique<Rank>(folder_, i, 3, limits_of(1)));
    ranks.back()->watchdog().set_mesh_place(i, 0);
    ranks.back()->place.enter(i == 2 ? Phase::kData : Phase::kSum, 7);
  }
  for (const auto& rank : ranks) EXPECT_TRUE(comes([&] { return rank->ended().has_value(); }));
  ASSERT_TRUE(ranks[0]->told());
  EXPECT_PART(*ranks[0]->told(), "rank 2 (");
  EXPECT_PART(*ranks[0]->told(), "dp 2, tp 0) is at step 7 in the data loader");
  EXPECT_PART(*ranks[0]->told(), "what each rank did: ");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ranks[i]->told().has_value(), i == 0);
    ASSERT_TRUE(ranks[i]->aborted());
    EXPECT_PART(*ranks[i]->aborted(), "rank 2 (");
    EXPECT_EQ(ranks[i]->ended(), 1);
  }
  EXPECT_PART(dump(), "at step 7 in the sums over ranks");
}

TEST_F(Watched, AKilledRankIsNamed) {
  const pid_t child = fork_rank(1, 2, Phase::kForward, limits_of(100));
  Rank rank_0(folder_, 0, 2, limits_of(100));
  wait_for_all(rank_0);
  std::this_thread::sleep_for(milliseconds(1200));  // its first heartbeat
  EXPECT_FALSE(rank_0.told());
  kill(child, SIGKILL);
  ASSERT_TRUE(comes([&] { return rank_0.told().has_value(); }));
  EXPECT_PART(*rank_0.told(), "rank 1 (");
  EXPECT_PART(*rank_0.told(), "last heard of at step 7 in the forward pass");
  EXPECT_TRUE(comes([&] { return rank_0.ended() == 1; }));
}

TEST_F(Watched, AStoppedRankIsNamed) {
  const pid_t child = fork_rank(1, 2, Phase::kForward, limits_of(2));
  Rank rank_0(folder_, 0, 2, limits_of(100));
  wait_for_all(rank_0);
  std::this_thread::sleep_for(milliseconds(1200));
  kill(child, SIGSTOP);
  ASSERT_TRUE(comes([&] { return rank_0.told().has_value(); }));
  EXPECT_PART(*rank_0.told(), "is stopped: nothing was heard of it");
  EXPECT_PART(*rank_0.told(), "rank 1 (");
}

TEST_F(Watched, AKilledRank0IsNamedByTheLowestThatIsLeft) {
  const pid_t child = fork_rank(0, 3, Phase::kForward, limits_of(100));
  Rank rank_1(folder_, 1, 3, limits_of(100)), rank_2(folder_, 2, 3, limits_of(100));
  std::this_thread::sleep_for(milliseconds(2500));  // connections, roster
  kill(child, SIGKILL);
  ASSERT_TRUE(comes([&] { return rank_1.ended() && rank_2.ended(); }));
  ASSERT_TRUE(rank_1.told());
  EXPECT_PART(*rank_1.told(), "rank 0 (");
  EXPECT_PART(*rank_1.told(), "last heard of at step 7 in the forward pass");
  EXPECT_FALSE(rank_2.told());
}

TEST_F(Watched, ARankThatNeverStartsIsNamed) {
  Rank rank_0(folder_, 0, 3, limits_of(1)), rank_1(folder_, 1, 3, limits_of(1));
  for (Rank* rank : {&rank_0, &rank_1}) rank->place.enter(Phase::kConnect, 0);
  ASSERT_TRUE(comes([&] { return rank_0.ended() && rank_1.ended(); }));
  EXPECT_PART(*rank_0.told(), "rank 2 has not started");
}

TEST_F(Watched, AnErrorIsToldByRank0AndEndsAllWithItsCode) {
  Rank rank_0(folder_, 0, 2, limits_of(100)), rank_1(folder_, 1, 2, limits_of(100));
  wait_for_all(rank_0);
  rank_1.place.enter(Phase::kData, 3);
  EXPECT_EQ(rank_1.watchdog().report("[data] tokens.bin: cannot be read", 2), 2);
  EXPECT_TRUE(comes([&] { return rank_0.told().has_value(); }));
  EXPECT_PART(*rank_0.told(), "rank 1 (");
  EXPECT_PART(*rank_0.told(), ", at step 3 in the data loader: [data] tokens.bin: cannot be read");
  // What follows from it is not told.
  EXPECT_EQ(rank_0.watchdog().report("[comm] world: barrier was aborted: rank 1", 1), 2);
  EXPECT_TRUE(comes([&] { return rank_0.ended() == 2 && rank_1.ended() == 2; }));
}

TEST_F(Watched, WhoEndsInOrderIsNotLost) {
  Rank rank_0(folder_, 0, 2, limits_of(100));
  {
    Rank rank_1(folder_, 1, 2, limits_of(100));
    wait_for_all(rank_0);
  }
  std::this_thread::sleep_for(milliseconds(700));
  EXPECT_FALSE(rank_0.told());
  EXPECT_TRUE(rank_0.watchdog().warning().empty());
  EXPECT_FALSE(std::filesystem::exists(meeting_path(folder_ / "logs", kId)));
}

TEST_F(Watched, ARank0ThatEndsInOrderIsNotLost) {
  auto rank_0 = std::make_unique<Rank>(folder_, 0, 2, limits_of(100));
  Rank rank_1(folder_, 1, 2, limits_of(100));
  wait_for_all(*rank_0);
  rank_0.reset();
  std::this_thread::sleep_for(milliseconds(700));
  EXPECT_FALSE(rank_1.told());
  EXPECT_FALSE(rank_1.watchdog().report("an error that nobody hears", 1));
}

TEST_F(Watched, WithoutAChannelThereIsAWarningAndNothingElse) {
  write_file_atomic(folder_ / "logs", "not a folder");
  Rank rank_0(folder_, 0, 2, limits_of(1));
  EXPECT_TRUE(comes([&] {
    return rank_0.watchdog().warning().find("the ranks are not watched: ") != std::string::npos;
  }));
  EXPECT_FALSE(rank_0.watchdog().report("an error", 1));
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_FALSE(rank_0.told());
}

TEST_F(Watched, StrangersAndStaleFilesDoNoHarm) {
  // Of an earlier start with the same name; nobody listens there any more.
  const Listener old = listen_anywhere();
  write_meeting_file(meeting_path(folder_ / "logs", kId), {"q", "a", "", {"127.0.0.1"}, old.port});
  Rank rank_1(folder_, 1, 2, limits_of(100));
  std::this_thread::sleep_for(milliseconds(300));
  Rank rank_0(folder_, 0, 2, limits_of(100));
  std::optional<MeetingFile> meeting;
  EXPECT_TRUE(comes([&] {
    meeting = read_meeting_file(meeting_path(folder_ / "logs", kId));
    return !meeting || meeting->port != old.port;
  }));
  if (meeting) {
    LineSocket stranger(
        connect_to("127.0.0.1", meeting->port, milliseconds(1000), [] { return false; }));
    stranger.write("GET / HTTP/1.1");
    stranger.write(R"({"question": "wrong", "rank": 1, "host": "n9"})");
  }
  wait_for_all(rank_0);
  EXPECT_FALSE(rank_0.told());
}

}  // namespace
}  // namespace tessera
