// Saving beside the caller: what is written, how failures come back, and what a save waits for.

#include "checkpoint/store/saver.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <set>

#include "checkpoint/format/rank_file.h"
#include "checkpoint_testing.h"
#include "parallel/comm/core/self_communicator.h"

namespace tessera::testing {
namespace {

TEST(ByteRing, GivesBackWhatWasPutIn) {
  std::vector<std::byte> text(10007);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::byte>(i * 7 % 251);
  for (const size_t size : {1, 3, 64, 10006, 10007, 20000}) {
    std::vector<std::byte> memory(size), got;
    ByteRing ring(memory);
    std::thread filler([&] {
      for (size_t done = 0, n = 1; done < text.size(); done += n) {
        const auto room = ring.room();
        n = std::min({room.size(), text.size() - done, 1 + done % 97});
        std::memcpy(room.data(), text.data() + done, n);
        ring.filled(static_cast<int64_t>(n));
      }
      ring.end();
    });
    for (auto part = ring.front(); !part.empty(); part = ring.front()) {
      part = part.first(std::min<size_t>(part.size(), 1 + got.size() % 53));
      got.insert(got.end(), part.begin(), part.end());
      ring.taken(std::ssize(part));
    }
    filler.join();
    EXPECT_EQ(got, text) << size;
  }
}

TEST(ByteRing, AFillerDoesNotWaitForOneThatGaveUp) {
  std::vector<std::byte> memory(4);
  ByteRing ring(memory);
  ring.filled(4);
  std::thread other([&] { ring.give_up(); });
  EXPECT_TRUE(ring.room().empty());
  other.join();
  EXPECT_TRUE(ring.room().empty());
}

// A rank with its manager, its saver and the memory between the two.
struct Rank {
  Rank(const fs::path& dir, Communicator& world, size_t staging, int keep = 0)
      : manager(dir, keep, world, nullptr), memory(staging) {
    saver = std::make_unique<CheckpointSaver>(
        manager, world.host_group("checkpoint"),
        CheckpointSaver::Staging{.beside = staging > 0, .memory = memory, .copy_out = {}});
  }
  void save(
      int64_t step, const RankPieces& pieces, std::function<void()> before_commit = [] {}) {
    saver->save(test_manifest(step, kAllStates), pieces.pieces, std::move(before_commit));
  }
  // The text of the oldest outcome: a folder's name, or a failure.
  std::string outcome() {
    const auto done = saver->take_outcome();
    if (!done) return "none";
    if (!done->failure) return done->folder.filename();
    try {
      std::rethrow_exception(done->failure);
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  CheckpointManager manager;
  std::vector<std::byte> memory;
  std::unique_ptr<CheckpointSaver> saver;
};

class Saver : public Scratch {
 protected:
  std::set<std::string> listing(const fs::path& dir) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir)) names.insert(entry.path().filename());
    return names;
  }
  static RankPieces pieces_of(Communicator& world) {
    return make_pieces(world.rank(), world.size(), 0, 1, true, kAllStates);
  }
};

// Every file of a save beside the caller equals that of a save in line with it, also if the pieces
// change right after the call, and however little memory is between the two.
TEST_F(Saver, WritesWhatWasThereWhenItWasCalled) {
  for (const int ranks : {1, 2, 4}) {
    const fs::path expected = save_on_mesh(dir_ / "in-line", ranks, ranks, 1, kAllStates);
    for (const size_t staging : {0, 1, 100, 1000, 1 << 20}) {
      const fs::path dir = dir_ / fmt::format("beside-{}-{}", ranks, staging);
      run_thread_ranks(ranks, [&](Communicator& world) {
        Rank rank(dir, world, staging);
        RankPieces pieces = pieces_of(world);
        rank.save(ranks, pieces);
        for (auto& values : pieces.data) std::fill(values.begin(), values.end(), -1.0F);
        rank.saver->wait();
        EXPECT_EQ(rank.outcome(), step_dir_name(ranks));
        EXPECT_EQ(rank.outcome(), "none");
        EXPECT_FALSE(rank.saver->failed());
      });
      for (const auto& entry : fs::directory_iterator(expected))
        EXPECT_EQ(slurp(dir / step_dir_name(ranks) / entry.path().filename()), slurp(entry.path()))
            << entry.path() << " by " << staging;
    }
  }
}

// The save cannot end before the caller has gone on: it waits for what the caller does afterwards.
TEST_F(Saver, TheCallerGoesOnBesideIt) {
  std::promise<void> gone_on;
  const auto self = make_self_communicator();
  Rank rank(dir_, *self, 1 << 20);
  rank.manager.set_probe([&](const char* point) {
    if (std::string(point) == "file begun") gone_on.get_future().wait();
  });
  rank.save(1, pieces_of(*self));
  EXPECT_EQ(rank.outcome(), "none");
  gone_on.set_value();
  rank.saver->wait();
  EXPECT_EQ(rank.outcome(), "step-00000001");
}

TEST_F(Saver, AFailureIsTheOutcomeOnAllRanksAndTheNextSaveTriesAgain) {
  std::atomic<int> failures{0};
  for (const size_t staging : {0, 64, 1 << 20}) {
    const fs::path dir = dir_ / std::to_string(staging);
    run_thread_ranks(3, [&](Communicator& world) {
      Rank rank(dir, world, staging, /*keep=*/1);
      const RankPieces pieces = pieces_of(world);
      rank.save(1, pieces);
      rank.saver->wait();
      EXPECT_EQ(rank.outcome(), "step-00000001");
      const char* where = "piece written";
      rank.manager.set_probe([&](const char* point) {
        if (world.rank() == 1 && std::string(point) == where) fail("files", "no space");
      });
      rank.save(2, pieces);
      rank.saver->retire_old();  // does nothing: step 1 is the newest that there is
      rank.saver->wait();
      EXPECT_TRUE(contains(rank.outcome(), "no space (on rank 1)"));
      EXPECT_TRUE(rank.saver->failed());
      where = "";
      rank.save(3, pieces, [&] {
        // What must be there before the commit, and is called by rank 0 alone.
        EXPECT_EQ(world.rank(), 0);
        fail("metrics", "not on the disk");
      });
      rank.saver->wait();
      EXPECT_TRUE(contains(rank.outcome(), "not on the disk (on rank 0)"));
      world.barrier().block();
      if (world.rank() == 0) {
        EXPECT_EQ(listing(dir), (std::set<std::string>{"latest", "step-00000001"}));
      }
      world.barrier().block();
      rank.save(4, pieces);
      rank.saver->retire_old();
      rank.saver->wait();
      EXPECT_EQ(rank.outcome(), "step-00000004");
      EXPECT_FALSE(rank.saver->failed());
      ++failures;
    });
    EXPECT_EQ(listing(dir), (std::set<std::string>{"latest", "step-00000004"}));
  }
  EXPECT_EQ(failures, 9);
}

// Leaving, also because of an error, completes what all ranks work on.
TEST_F(Saver, TheEndWaitsForTheSaveUnderWay) {
  run_thread_ranks(2, [&](Communicator& world) {
    try {
      Rank rank(dir_, world, 1 << 20);
      rank.save(7, pieces_of(world));
      fail("train", "the loss is not finite");
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "not finite"));
    }
  });
  EXPECT_EQ(listing(dir_), (std::set<std::string>{"latest", "step-00000007"}));
}

// When a rank is lost, the save of the others ends as well.
TEST_F(Saver, AnAbortedWorldGivesItUp) {
  EXPECT_THROW(run_thread_ranks(2,
                                [&](Communicator& world) {
                                  Rank rank(dir_, world, 64);
                                  if (world.rank() == 1) fail("test", "lost");
                                  rank.save(1, pieces_of(world));
                                  rank.saver->wait();
                                  EXPECT_TRUE(rank.saver->failed());
                                }),
               Error);
}

class StagingFolder : public Saver {
 protected:
  fs::path dir_of(const char* name) const { return dir_ / name; }
};

TEST_F(StagingFolder, HoldsTheFilesOnTheirWayAlone) {
  const fs::path expected = save_on_mesh(dir_ / "in-line", 5, 3, 1, kAllStates);
  run_thread_ranks(3, [&](Communicator& world) {
    Rank rank(dir_ / "steps", world, 64);
    rank.manager.use_staging_dir(dir_ / "local");
    std::atomic<bool> seen{false};
    rank.manager.set_probe([&](const char* point) {
      if (std::string(point) == "file begun")
        seen = !fs::is_empty(dir_ / "local") && !fs::exists(dir_ / "steps" / "step-00000005");
    });
    rank.save(5, pieces_of(world));
    rank.saver->wait();
    EXPECT_EQ(rank.outcome(), "step-00000005");
    EXPECT_TRUE(seen);
  });
  EXPECT_TRUE(fs::is_empty(dir_ / "local"));
  for (const auto& entry : fs::directory_iterator(expected))
    EXPECT_EQ(slurp(dir_ / "steps" / "step-00000005" / entry.path().filename()),
              slurp(entry.path()));
}

// Killed before, between and after the two copies: what was there stays, and the next start of the
// same run, but no other run, removes what was left.
TEST_F(StagingFolder, AKillLeavesTheOlderCheckpointAndNoFileForEver) {
  for (const std::string kill_at : {"piece written", "partial made", "file written"}) {
    SCOPED_TRACE(kill_at);
    const fs::path dir = dir_ / kill_at, local = dir_ / (kill_at + " local");
    const pid_t child = fork();
    if (child == 0) {
      const auto self = make_self_communicator();
      CheckpointManager manager(dir, 0, *self, nullptr);
      manager.use_staging_dir(local);
      manager.save(test_manifest(1, kAllStates), pieces_of(*self).pieces);
      manager.set_probe([&](const char* point) {
        if (point == kill_at) _exit(9);
      });
      manager.save(test_manifest(2, kAllStates), pieces_of(*self).pieces);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_EQ(WEXITSTATUS(status), 9);
    EXPECT_EQ(fs::is_empty(local), kill_at == "file written");
    const auto self = make_self_communicator();
    CheckpointManager other(dir_ / "other run", 0, *self, nullptr);
    other.use_staging_dir(local);
    EXPECT_EQ(fs::is_empty(local), kill_at == "file written");
    CheckpointManager manager(dir, 0, *self, nullptr);
    manager.use_staging_dir(local);
    EXPECT_TRUE(fs::is_empty(local));
    EXPECT_EQ(manager.find_latest()->dir().filename(), "step-00000001");
  }
}

TEST_F(StagingFolder, MustBeWritable) {
  spit(dir_ / "file", "");
  EXPECT_TRUE(contains(
      user_error([&] {
        run_thread_ranks(2, [&](Communicator& world) {
          CheckpointManager(dir_ / "steps", 0, world, nullptr).use_staging_dir(dir_ / "file");
        });
      }),
      "cannot make the folder"));
}

}  // namespace
}  // namespace tessera::testing
