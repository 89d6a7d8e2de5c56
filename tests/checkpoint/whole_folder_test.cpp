// Output folders appear whole or not at all, and --force replaces one whole folder by another.
#include "checkpoint/store/whole_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/files/unfinished.h"
#include "checkpoint_testing.h"

namespace tessera::testing {
namespace {

class WholeFolders : public Scratch {
 protected:
  // What a process that has ended did as its last.
  template <typename Work>
  static void ended(Work work) {
    const pid_t child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }

  static Replace anything() {
    return {[](const fs::path&) { return std::string(); }, {}};
  }

  void make_old() {
    fs::create_directories(out_);
    spit(out_ / "file", "old");
  }

  void publish(std::optional<Replace> replace) {
    WholeFolder folder(out_, std::move(replace));
    spit(folder.partial() / "file", "new");
    folder.publish();
    EXPECT_EQ(folder.notes(), std::vector<std::string>());
  }

  // As a process leaves it that was killed between the two renames of publish().
  void kill_between_renames() {
    ended([&] {
      const fs::path place = unfinished_name(out_);
      fs::create_directories(place / "new");
      mark_unfinished(place);
      spit(place / "new" / "file", "new");
      fs::rename(out_, place / "old");
    });
    ASSERT_FALSE(fs::exists(out_));
  }

  int64_t entries() const {
    return std::distance(fs::directory_iterator(dir_), fs::directory_iterator());
  }

  fs::path out_ = dir_ / "out";
};

TEST_F(WholeFolders, AnExistingOneGivesWayOnlyWhereItMay) {
  make_old();
  EXPECT_TRUE(contains(user_error([&] { publish({}); }), "exists already"));
  const Replace no{[](const fs::path& path) { return path.string() + " is precious"; }, {}};
  EXPECT_TRUE(contains(user_error([&] { publish(no); }), "out is precious"));
  EXPECT_EQ(slurp(out_ / "file"), "old");
  publish(anything());
  EXPECT_EQ(slurp(out_ / "file"), "new");
  EXPECT_EQ(entries(), 1);
}

TEST_F(WholeFolders, WhatIsReadIsNeverReplaced) {
  make_old();
  fs::create_directories(out_ / "inside");
  fs::create_directory_symlink(out_, dir_ / "link");
  for (const fs::path& input : {out_, out_ / "inside", dir_ / "link", dir_ / "link/inside/.."}) {
    Replace replace = anything();
    replace.inputs = {dir_ / "other", input};
    EXPECT_TRUE(contains(user_error([&] { publish(replace); }), " is read; give another"));
  }
  Replace replace = anything();
  replace.inputs = {dir_, dir_ / "out2"};  // above it, and beside it
  publish(replace);
  EXPECT_EQ(slurp(out_ / "file"), "new");
}

TEST_F(WholeFolders, LinksAndFilesAreNotReplaced) {
  fs::create_directories(dir_ / "real");
  spit(dir_ / "real/file", "keep");
  fs::create_directory_symlink(dir_ / "real", out_);
  EXPECT_TRUE(contains(user_error([&] { publish(anything()); }), "it is a link"));
  fs::remove(out_);
  spit(out_, "keep");
  EXPECT_TRUE(contains(user_error([&] { publish(anything()); }), "it is no folder"));
  EXPECT_EQ(slurp(out_), "keep");
}

TEST_F(WholeFolders, WhatFailsLeavesTheOldOne) {
  make_old();
  {
    WholeFolder folder(out_, anything());
    spit(folder.partial() / "file", "half");
  }
  EXPECT_EQ(slurp(out_ / "file"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(WholeFolders, AKilledReplacementIsUndone) {
  make_old();
  kill_between_renames();
  // The old one is back before anything is decided.
  EXPECT_TRUE(contains(user_error([&] { publish({}); }), "exists already"));
  EXPECT_EQ(slurp(out_ / "file"), "old");
  EXPECT_EQ(entries(), 1);
  kill_between_renames();
  publish(anything());
  EXPECT_EQ(slurp(out_ / "file"), "new");
  EXPECT_EQ(entries(), 1);
}

// It was killed after both renames, or somebody has made the folder since: what was put aside goes.
TEST_F(WholeFolders, AnOldOneDoesNotComeBackOverANewerOne) {
  make_old();
  kill_between_renames();
  fs::create_directories(out_);
  spit(out_ / "file", "newer");
  EXPECT_TRUE(contains(user_error([&] { publish({}); }), "exists already"));
  EXPECT_EQ(slurp(out_ / "file"), "newer");
  EXPECT_EQ(entries(), 1);
}

}  // namespace
}  // namespace tessera::testing
