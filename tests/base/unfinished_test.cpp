#include "base/files/unfinished.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/process/process_identity.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Unfinished : public testing::Test {
 protected:
  // What a process that has ended did as its last.
  static pid_t ended(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    return child;
  }

  static void spit(const fs::path& path) { std::ofstream(path) << "x"; }

  TemporaryFolder folder_;
  fs::path target_ = folder_ / "out";
};

TEST_F(Unfinished, FoldersOfEndedProcessesAreFound) {
  ended([&] {
    fs::create_directory(unfinished_name(target_));
    mark_unfinished(unfinished_name(target_));
    spit(unfinished_name(target_) / "model.safetensors");
    fs::create_directory(unfinished_name(target_, 2));
    mark_unfinished(unfinished_name(target_, 2));
  });
  const fs::path own = unfinished_name(target_);
  fs::create_directory(own);
  mark_unfinished(own);
  const std::vector<fs::path> found = unfinished_folders(target_);
  EXPECT_EQ(found.size(), 2u);
  EXPECT_EQ(std::count(found.begin(), found.end(), own), 0);
}

// Without our mark, or with one that leaves a doubt, it is not ours to delete.
TEST_F(Unfinished, OtherFoldersAreNot) {
  const pid_t process = ended([] {});
  const std::string name = target_.string() + ".partial-";
  fs::create_directory(name + std::to_string(process));
  fs::create_directories(name + std::to_string(process) + ".2/of a user");
  fs::create_directory(name + std::to_string(process) + ".4");
  std::ofstream(name + std::to_string(process) + ".4/.owner").flush();
  ProcessIdentity elsewhere = ProcessIdentity::own();
  elsewhere.machine = "another";
  fs::create_directory(name + "1234567.3");
  std::ofstream(name + "1234567.3/.owner") << elsewhere.to_text();
  fs::create_directory(name + "mine");
  fs::create_directory(folder_ / "other.partial-1234567");
  EXPECT_TRUE(unfinished_folders(target_).empty());
  // Killed before it could mark its folder.
  EXPECT_FALSE(fs::exists(name + std::to_string(process)));
  EXPECT_FALSE(fs::exists(name + std::to_string(process) + ".4"));
  EXPECT_TRUE(fs::exists(name + std::to_string(process) + ".2/of a user"));
}

TEST_F(Unfinished, FilesOfEndedProcessesGo) {
  const pid_t process = ended([&] { spit(unfinished_name(target_)); });
  spit(unfinished_name(target_));           // of this process, which lives
  spit(target_.string() + ".partial-");     // no number
  spit(target_.string() + ".partial-12x");  // nor here
  fs::create_directory(target_.string() + ".partial-1234567");
  const fs::path locked = target_.string() + ".partial-1234568";  // of another machine's process
  spit(locked);
  const int fd = open(locked.c_str(), O_RDWR);
  lock_unfinished(fd);
  remove_unfinished_files(target_);
  EXPECT_FALSE(fs::exists(target_.string() + ".partial-" + std::to_string(process)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 5);
  close(fd);
  remove_unfinished_files(target_);
  EXPECT_FALSE(fs::exists(locked));
}

}  // namespace
}  // namespace tessera
