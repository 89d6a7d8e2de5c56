#include "checkpoint/store/manager.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/open_on_ranks.h"
#include "checkpoint_testing.h"
#include "parallel/comm/core/agreement.h"
#include "parallel/comm/core/self_communicator.h"

namespace tessera::testing {
namespace {

class Managers : public Scratch {
 protected:
  // What find_latest() gives on every rank ("-" for none), and the warnings.
  std::string find(int ranks = 1) {
    std::mutex mutex;
    std::set<std::string> answers;
    warnings_.clear();
    run_thread_ranks(ranks, [&](Communicator& world) {
      CheckpointManager manager(dir_, 0, world, [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        warnings_ += line + "\n";
      });
      manager.set_late_file_limit({});
      const auto latest = manager.find_latest();
      const std::lock_guard lock(mutex);
      answers.insert(latest ? latest->dir().filename().string() : "-");
    });
    EXPECT_EQ(answers.size(), 1u) << "ranks disagree";
    return *answers.begin();
  }

  fs::path save(int64_t step, int keep = 0) {
    return save_on_mesh(dir_, step, 2, 1, kAllStates, keep);
  }

  std::set<std::string> listing() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_)) names.insert(entry.path().filename());
    return names;
  }

  std::string warnings_;
};

TEST_F(Managers, SaveMakesAWholeCheckpoint) {
  EXPECT_EQ(find(3), "-");
  const fs::path step = save(100);
  EXPECT_EQ(step, dir_ / "step-00000100");
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000100"}));
  EXPECT_EQ(slurp(dir_ / "latest"), "step-00000100\n");
  EXPECT_EQ(find(3), "step-00000100");
  EXPECT_EQ(warnings_, "");
  const Manifest manifest = read_manifest(step);
  EXPECT_EQ(manifest.samples, 800);
  EXPECT_EQ(manifest.files.size(), 2u);
  verify_all(step);
}

// Neither skipped nor written over: it may be a different save.
TEST_F(Managers, SavingACommittedStepAgainIsAnErrorOnAllRanks) {
  const fs::path step = save(100);
  const auto before = fs::last_write_time(step / "manifest.json");
  std::atomic<int> thrown{0};
  run_thread_ranks(4, [&](Communicator& world) {
    RankPieces rank = make_pieces(world.rank(), 4, 0, 1, true, kAllStates);
    CheckpointManager manager(dir_, 1, world, nullptr);
    try {
      manager.save(test_manifest(100, kAllStates), rank.pieces);
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "step-00000100 is committed already"));
      ++thrown;
    }
  });
  EXPECT_EQ(thrown, 4);
  EXPECT_EQ(fs::last_write_time(step / "manifest.json"), before);
  EXPECT_EQ(read_manifest(step).files.size(), 2u);
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000100"}));
}

TEST_F(Managers, KeepsTheNewestByNumber) {
  for (const int64_t step : {8, 9, 10, 11}) save(step, 2);
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000010", "step-00000011"}));
  // Above eight digits, text order would be wrong.
  for (const int64_t step : {99999999, 100000000, 100000001}) save(step, 2);
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-100000000", "step-100000001"}));
  EXPECT_EQ(find(), "step-100000001");
}

TEST_F(Managers, TheOneJustSavedStaysWhateverItsNumber) {
  for (const int64_t step : {100, 200, 300}) save(step);
  save(50, 1);
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000050"}));
}

TEST_F(Managers, MultiplesAndTheBestStayBesideTheNewest) {
  const auto self = make_self_communicator();
  CheckpointManager manager(dir_, {1, 4, 2}, *self, nullptr);
  RankPieces rank = make_pieces(0, 1, 0, 1, true, kAllStates);
  const std::vector<double> losses = {3.0, 1.0, 5.0, 4.0, 2.0, 1.0, 6.0};
  for (int64_t step = 1; step <= 7; ++step) {
    manager.save(test_manifest(step, kAllStates), rank.pieces);
    manager.record_loss(step, losses[static_cast<size_t>(step - 1)]);
    manager.retire_old();
  }
  // 2 and 6 are the best, 4 is a multiple, 7 the newest.
  const std::set<std::string> left = {"latest",        "validation.json", "step-00000002",
                                      "step-00000004", "step-00000006",   "step-00000007"};
  EXPECT_EQ(listing(), left);
  for (const int64_t step : {2, 4, 6, 7}) verify_all(dir_ / step_dir_name(step));
  // Another manager of the folder knows the losses as well; one that cannot read them deletes
  // nothing.
  std::string warnings;
  CheckpointManager next(dir_, {1, 0, 1}, *self,
                         [&](const std::string& line) { warnings += line; });
  spit(dir_ / "validation.json", "{");
  next.retire_old();
  EXPECT_EQ(listing(), left);
  EXPECT_TRUE(contains(warnings, "old checkpoints stay"));
  EXPECT_TRUE(contains(user_error([&] { next.forget_losses_after(0); }), "cannot be used"));
}

// The run is at a step that it found: nothing newer is whole, whatever the names say.
TEST_F(Managers, TheOneThatWasFoundStaysUntilTheNextIsSaved) {
  for (const int64_t step : {10, 20, 30}) save(step);
  const auto self = make_self_communicator();
  CheckpointManager manager(dir_, 1, *self, nullptr);
  ASSERT_EQ(manager.find_latest()->dir(), dir_ / "step-00000030");
  save(40);  // of another program, say
  manager.retire_old();
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000030", "step-00000040"}));
  RankPieces rank = make_pieces(0, 1, 0, 1, true, kAllStates);
  manager.save(test_manifest(50, kAllStates), rank.pieces);
  EXPECT_EQ(listing().size(), 4u);
  manager.retire_old();
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000050"}));
}

TEST_F(Managers, RetentionTouchesOnlyWholeCheckpoints) {
  save(1);
  fs::create_directories(dir_ / "step-00000002");  // no manifest
  fs::create_directories(dir_ / "step-00000003.broken");
  fs::create_directories(dir_ / "step-7");
  fs::create_directories(dir_ / "mine.partial");
  fs::create_directories(dir_ / "step-00000004.partial" / "x");
  fs::create_directories(dir_ / "step-00000005.deleting");
  spit(dir_ / "step-00000006", "a file");
  save(10, 1);
  EXPECT_EQ(listing(),
            (std::set<std::string>{"latest", "step-00000002", "step-00000003.broken", "step-7",
                                   "mine.partial", "step-00000006", "step-00000010"}));
}

TEST_F(Managers, KeepAndPathAreChecked) {
  const auto self = make_self_communicator();
  EXPECT_TRUE(
      contains(user_error([&] { CheckpointManager(dir_, -1, *self, nullptr); }), "keep is -1"));
  spit(dir_ / "file", "");
  for (const int ranks : {1, 3}) {
    EXPECT_TRUE(contains(user_error([&] {
                           run_thread_ranks(ranks, [](Communicator& world) {
                             CheckpointManager("", 1, world, nullptr);
                           });
                         }),
                         "path of the checkpoints is empty"));
    EXPECT_TRUE(contains(user_error([&] {
                           run_thread_ranks(ranks, [&](Communicator& world) {
                             CheckpointManager(dir_ / "file" / "x", 1, world, nullptr);
                           });
                         }),
                         "file/x"));
  }
}

TEST_F(Managers, AnErrorOnOneRankReachesAllAndLeavesTheOthersUntouched) {
  save(1);
  std::atomic<int> thrown{0};
  const auto failing_save = [&](int ranks, int bad) {
    thrown = 0;
    run_thread_ranks(ranks, [&](Communicator& world) {
      RankPieces rank = make_pieces(world.rank(), ranks, 0, 1, true, kAllStates);
      CheckpointManager manager(dir_, 1, world, nullptr);
      manager.set_probe([&](const char* point) {
        if (world.rank() == bad && std::string(point) == "piece written")
          fail("files", "cannot write to the disk: No space left on device");
      });
      try {
        manager.save(test_manifest(2, kAllStates), rank.pieces);
      } catch (const Error& error) {
        EXPECT_TRUE(contains(error.what(), "No space left on device"));
        EXPECT_TRUE(contains(error.what(), fmt::format("on rank {}", bad)));
        ++thrown;
      }
    });
    EXPECT_EQ(thrown, ranks);
  };
  failing_save(3, 2);
  failing_save(2, 0);
  // A full disk needs the space of what was begun.
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000001"}));
  EXPECT_EQ(slurp(dir_ / "latest"), "step-00000001\n");
  EXPECT_EQ(find(2), "step-00000001");
  save(2);
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000001", "step-00000002"}));
}

TEST_F(Managers, TwoPiecesOfOneTensorOnARankAreRefused) {
  const auto self = make_self_communicator();
  CheckpointManager manager(dir_, 1, *self, nullptr);
  RankPieces rank = make_pieces(0, 1, 0, 1, true, {kStateParam});
  rank.pieces.push_back(rank.pieces.front());
  try {
    manager.save(test_manifest(1, {kStateParam}), rank.pieces);
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "two pieces of 'embed/param'"));
  }
}

// What find_latest() steps over: each kind of damage to the newest of two.
TEST_F(Managers, ABrokenNewestIsNamedMovedAndSteppedOver) {
  const auto file = [](const fs::path& step) { return step / rank_file_name(1); };
  const std::vector<std::pair<std::string, std::function<void(const fs::path&)>>> damages = {
      {"manifest.json is missing",
       [&](const fs::path& step) { fs::remove(step / "manifest.json"); }},
      {"not valid JSON",
       [&](const fs::path& step) {
         const std::string text = slurp(step / "manifest.json");
         spit(step / "manifest.json", text.substr(0, text.size() / 2));
       }},
      {"rank-00001.safetensors is missing", [&](const fs::path& step) { fs::remove(file(step)); }},
      {"pieces.safetensors is missing",
       [&](const fs::path& step) { fs::remove(step / kPieceIndexName); }},
      {"the manifest says",
       [&](const fs::path& step) { fs::resize_file(file(step), fs::file_size(file(step)) / 2); }},
      {"the checksum is",
       [&](const fs::path& step) {
         std::string text = slurp(step / kPieceIndexName);
         text[text.size() - 3] ^= 4;
         spit(step / kPieceIndexName, text);
       }},
      {"pieces.safetensors has",
       [&](const fs::path& step) {
         fs::resize_file(step / kPieceIndexName, fs::file_size(step / kPieceIndexName) - 1);
       }},
      {"is not a regular file",
       [&](const fs::path& step) {
         fs::remove(file(step));
         fs::create_directory(file(step));
       }},
  };
  save(10);
  int64_t number = 20;
  for (const auto& [reason, damage] : damages) {
    const fs::path step = save(number++);
    damage(step);
    for (const int ranks : {3}) EXPECT_EQ(find(ranks), "step-00000010") << reason;
    EXPECT_TRUE(contains(warnings_, reason));
    EXPECT_TRUE(contains(warnings_, step.filename().string() + " is broken"));
    EXPECT_FALSE(fs::exists(step));
    EXPECT_TRUE(fs::exists(step.string() + ".broken"));
  }
  // The same step is saved again and breaks again: both stay to be looked at.
  fs::remove(save(20) / "manifest.json");
  EXPECT_EQ(find(), "step-00000010");
  EXPECT_TRUE(fs::exists(dir_ / "step-00000020.broken.2"));
}

// Damaged data are found when they are loaded; then an older checkpoint takes the place.
TEST_F(Managers, ACheckpointWhoseLoadFindsDamageIsSetAside) {
  save(10);
  const fs::path step = save(20);
  std::string text = slurp(step / rank_file_name(1));
  text[text.size() - 3] ^= 4;
  spit(step / rank_file_name(1), text);
  EXPECT_EQ(find(3), "step-00000020");
  std::mutex mutex;
  std::set<std::string> loaded;
  run_thread_ranks(3, [&](Communicator& world) {
    CheckpointManager manager(dir_, 0, world, [&](const std::string& line) {
      const std::lock_guard lock(mutex);
      warnings_ += line + "\n";
    });
    const auto load = [&](const std::shared_ptr<const StoredCheckpoint>& checkpoint) {
      return manager.load_or_set_aside(*checkpoint, [&] { manager.verify(checkpoint); });
    };
    const auto newest = manager.find_latest();
    EXPECT_FALSE(load(newest));
    const auto older = manager.find_latest();
    EXPECT_TRUE(load(older));
    const std::lock_guard lock(mutex);
    loaded.insert(older->dir().filename().string());
  });
  EXPECT_EQ(loaded, std::set<std::string>{"step-00000010"});
  EXPECT_TRUE(contains(warnings_, "step-00000020 is broken: "));
  EXPECT_TRUE(contains(warnings_, "rank-00001.safetensors: piece"));
  EXPECT_TRUE(fs::exists(step.string() + ".broken"));
}

TEST_F(Managers, OnlyBrokenOnesAreAnErrorAndStayOne) {
  for (const int64_t step : {1, 2}) fs::remove(save(step) / rank_file_name(0));
  for (const int ranks : {2, 1}) {  // also when asked again: never a silent fresh start
    const std::string message = user_error([&] { find(ranks); });
    EXPECT_TRUE(contains(message, "none is whole"));
    EXPECT_TRUE(contains(message, "2 set aside"));
  }
}

// What is no damage ends the search and leaves every name as it is.
TEST_F(Managers, ANewerFormatIsNotDamage) {
  save(10);
  const fs::path step = save(20);
  replace_in_file(step / "manifest.json", "\"version\": 3", "\"version\": 4");
  for (const int ranks : {1, 3}) {
    EXPECT_TRUE(contains(user_error([&] { find(ranks); }), "format version 4"));
    EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000010", "step-00000020"}));
    EXPECT_EQ(warnings_, "");
  }
}

// A file that may not be read. Root may read all, so it takes another user's part for the search.
TEST_F(Managers, AMissingPermissionIsNotDamage) {
  save(10);
  const fs::path step = save(20);
  fs::permissions(dir_, fs::perms::all);
  for (const fs::path& path : {step / rank_file_name(1), step / "manifest.json", step}) {
    SCOPED_TRACE(path);
    const fs::perms before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::none);
    std::string message;
    ASSERT_EQ(seteuid(geteuid() == 0 ? 65534 : geteuid()), 0);
    try {
      run_thread_ranks(2, [&](Communicator& world) {
        CheckpointManager manager(dir_, 0, world, nullptr);
        const auto newest = manager.find_latest();
        manager.load_or_set_aside(*newest, [&] { manager.verify(newest); });
      });
    } catch (const UserError& error) {
      message = std::string("a UserError: ") + error.what();
    } catch (const Error& error) {
      message = error.what();
    }
    ASSERT_EQ(seteuid(getuid()), 0);
    fs::permissions(path, before);
    EXPECT_TRUE(contains(message, "Permission denied"));
    EXPECT_FALSE(contains(message, "UserError"));
    EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000010", "step-00000020"}));
    EXPECT_EQ(warnings_, "");
  }
  EXPECT_EQ(find(2), "step-00000020");
}

// A rank that cannot read while another finds damage: the machine is not fit to judge.
TEST_F(Managers, DamageCountsOnlyWhereNothingElseFails) {
  std::atomic<int> damaged{0}, failed{0};
  for (const bool one_fails : {false, true})
    run_thread_ranks(3, [&](Communicator& world) {
      try {
        agree(world, [&]() -> std::string {
          if (world.rank() == 0) fail_damaged("test", "a bad checksum");
          if (world.rank() == 2 && one_fails) fail("test", "Input/output error");
          return "";
        });
      } catch (const DamagedError& error) {
        EXPECT_TRUE(contains(error.what(), "a bad checksum (on rank 0)"));
        ++damaged;
      } catch (const Error& error) {
        EXPECT_TRUE(contains(error.what(), "Input/output error (on rank 2)"));
        ++failed;
      }
    });
  EXPECT_EQ(damaged, 3);
  EXPECT_EQ(failed, 3);
}

// verify() of an explicit path: all ranks alike, and nothing is moved.
TEST_F(Managers, VerifyThrowsOnAllRanksAndMovesNothing) {
  save(10);
  const fs::path step = save(20);
  const auto verify = [&](const fs::path& path, int ranks) {
    std::mutex mutex;
    std::multiset<std::string> answers;
    run_thread_ranks(ranks, [&](Communicator& world) {
      CheckpointManager manager(dir_, 0, world, nullptr);
      const std::string answer =
          user_error([&] { manager.verify(open_on_all_ranks(world, path)); });
      const std::lock_guard lock(mutex);
      answers.insert(answer);
    });
    EXPECT_EQ(answers.count(*answers.begin()), static_cast<size_t>(ranks)) << "ranks disagree";
    return *answers.begin();
  };
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(verify(step, ranks), "no error");
    EXPECT_TRUE(contains(verify(dir_ / "step-00000030", ranks), "step-00000030 does not exist"));
    EXPECT_TRUE(contains(verify(dir_, ranks), "manifest.json is missing"));
  }
  for (const int file : {0, 1}) {
    const fs::path path = step / rank_file_name(file);
    const std::string good = slurp(path);
    std::string bad = good;
    bad[bad.size() - 3] ^= 4;
    spit(path, bad);
    for (const int ranks : {1, 2, 3})
      EXPECT_TRUE(contains(verify(step, ranks), rank_file_name(file) + ": piece"));
    spit(path, good);
  }
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000010", "step-00000020"}));
}

TEST_F(Managers, CommittedStepsAreListedByNumberOnEveryRank) {
  const auto steps = [&](int ranks) {
    std::mutex mutex;
    std::set<std::vector<int64_t>> answers;
    run_thread_ranks(ranks, [&](Communicator& world) {
      CheckpointManager manager(dir_, 0, world, nullptr);
      const std::vector<int64_t> answer = manager.committed_steps();
      const std::lock_guard lock(mutex);
      answers.insert(answer);
    });
    EXPECT_EQ(answers.size(), 1u) << "ranks disagree";
    return *answers.begin();
  };
  EXPECT_EQ(steps(3), std::vector<int64_t>{});
  for (const int64_t step : {100000000, 9, 99999999, 0}) save(step);
  fs::remove(dir_ / step_dir_name(9) / rank_file_name(0));  // damaged, and not looked at
  fs::create_directories(dir_ / "step-00000002");           // no manifest
  fs::create_directories(dir_ / "step-00000003.partial");
  fs::create_directories(dir_ / "step-00000004.broken");
  const auto before = listing();
  for (const int ranks : {1, 3})
    EXPECT_EQ(steps(ranks), (std::vector<int64_t>{0, 9, 99999999, 100000000}));
  EXPECT_EQ(listing(), before);
}

TEST_F(Managers, AnUnfinishedFirstSaveIsNoCheckpoint) {
  fs::create_directories(dir_ / "step-00000001.partial");
  EXPECT_EQ(find(), "-");
}

// Killed at every point of a save, with a checkpoint to fall back to: the next start finds a whole
// one, the new one from the commit on, and the next save cleans up.
TEST_F(Managers, KilledAtEveryPointOfASave) {
  const std::vector<std::string> points = {
      "begin",      "partial made",    "file begun",       "piece written",  "file written",
      "all agreed", "index written",   "manifest written", "folder synced",  "renamed",
      "committed",  "latest replaced", "old one renamed",  "old one removed"};
  const size_t commit = 9;  // "renamed"
  for (size_t i = 0; i < points.size(); ++i) {
    SCOPED_TRACE(points[i]);
    fs::remove_all(dir_);
    save(10);
    save(20);
    std::fflush(nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto self = make_self_communicator();
      RankPieces rank = make_pieces(0, 1, 0, 1, true, kAllStates);
      CheckpointManager manager(dir_, 2, *self, nullptr);
      manager.set_probe([&](const char* point) {
        if (points[i] == point) kill(getpid(), SIGKILL);
      });
      manager.save(test_manifest(30, kAllStates), rank.pieces);
      manager.retire_old();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the point was not reached";

    EXPECT_EQ(find(2), i < commit ? "step-00000020" : "step-00000030");
    EXPECT_EQ(warnings_, "");
    if (i < commit) save(30, 2);
    save(40, 2);
    EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000030", "step-00000040"}));
    EXPECT_EQ(find(), "step-00000040");
    verify_all(dir_ / "step-00000030");
  }
}

// At any moment of saving with keep 1 at least one committed checkpoint exists.
TEST_F(Managers, KeepOneNeverLeavesNone) {
  save(1);
  const auto self = make_self_communicator();
  CheckpointManager manager(dir_, 1, *self, nullptr);
  int points = 0;
  manager.set_probe([&](const char*) {
    ++points;
    bool any = false;
    for (const int64_t step : list_run_folder(dir_).steps)
      any |= fs::exists(dir_ / step_dir_name(step) / "manifest.json");
    EXPECT_TRUE(any);
  });
  for (const int64_t step : {2, 3}) {
    RankPieces rank = make_pieces(0, 1, 0, 1, true, kAllStates);
    manager.save(test_manifest(step, kAllStates), rank.pieces);
    EXPECT_EQ(listing().size(), 3u);  // `latest`, the old one and the new one
    manager.retire_old();
  }
  EXPECT_GT(points, 20);
  EXPECT_EQ(listing(), (std::set<std::string>{"latest", "step-00000003"}));
}

TEST_F(Managers, ManyRanksMakeTheFolderTogether) {
  for (int round = 0; round < 5; ++round) {
    const fs::path deep = dir_ / std::to_string(round) / "a" / "b" / "c";
    EXPECT_EQ(save_on_mesh(deep, 1, 4, 2, kAllStates), deep / "step-00000001");
  }
}

}  // namespace
}  // namespace tessera::testing
