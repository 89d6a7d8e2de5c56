#include "base/files/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"
#include "base/files/try_folder.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  static testing::AssertionResult contains(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "'" << text << "' lacks '" << part << "'";
  }

  template <typename Call>
  static std::string user_error(Call call) {
    try {
      call();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no UserError";
  }

  TemporaryFolder folder_;
  fs::path dir_ = folder_.path();
};

TEST_F(Files, WritesAndReadsAtOffsets) {
  const fs::path path = dir_ / "data";
  File out = File::create(path);
  out.write_at("world", 5, 6);
  out.write_at("hello ", 6, 0);
  out.sync();
  out.close();
  const File in = File::open(path);
  EXPECT_EQ(in.size(), 11);
  char text[5];
  in.read_at(text, 5, 3);
  EXPECT_EQ(std::string(text, 5), "lo wo");
}

TEST_F(Files, ErrorsNameThePathAndTheNumbers) {
  EXPECT_TRUE(contains(user_error([&] { File::open(dir_ / "missing"); }), "/missing"));
  EXPECT_TRUE(contains(user_error([&] { File::open(dir_); }), "not a regular file"));
  ASSERT_EQ(mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_TRUE(contains(user_error([&] { File::open(dir_ / "fifo"); }), "not a regular file"));
  write_file_atomic(dir_ / "short", "1234");
  char buffer[8];
  EXPECT_TRUE(contains(user_error([&] { File::open(dir_ / "short").read_at(buffer, 8, 0); }),
                       "short ends at byte 4, 8 bytes at 0"));
  EXPECT_TRUE(
      contains(user_error([&] { read_small_file(dir_ / "short", 3); }), "has 4 bytes, at most 3"));
  EXPECT_THROW(File::create(dir_ / "no" / "folder"), Error);
}

// A file that ends early is damaged; one that the device does not give is not known to be. This
// process's memory is a file whose first page cannot be read.
TEST_F(Files, AFailedReadIsNoDamage) {
  char byte = 0;
  write_file_atomic(dir_ / "short", "1234");
  EXPECT_THROW(File::open(dir_ / "short").read_at(&byte, 1, 4), DamagedError);
  try {
    File::open("/proc/self/mem").read_at(&byte, 1, 0);
    FAIL() << "the first page was read";
  } catch (const UserError& error) {
    FAIL() << error.what();
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "/proc/self/mem: Input/output error"));
  }
}

TEST_F(Files, AFullDiskIsAnErrorWithItsPath) {
  File full(File::create("/dev/full"));
  try {
    full.write_at("x", 1, 0);
    FAIL() << "writing to /dev/full succeeded";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "/dev/full: No space left"));
  }
}

TEST_F(Files, AtomicWriteReplacesAndLeavesNothingElse) {
  const fs::path path = dir_ / "latest";
  write_file_atomic(path, "one");
  write_file_atomic(path, "second");
  EXPECT_EQ(read_small_file(path, 100), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

// What lies under the temporary name and cannot be replaced stays; another name is taken.
TEST_F(Files, AtomicWriteGoesAroundALeftOver) {
  fs::create_directory(temporary_name(dir_ / "latest"));
  write_file_atomic(dir_ / "latest", "one");
  EXPECT_EQ(read_small_file(dir_ / "latest", 100), "one");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 2);
  fs::remove(temporary_name(dir_ / "latest"));
  for (const int number : {1, 2}) File::create(temporary_name(dir_ / "latest", number)).close();
  EXPECT_TRUE(remove_temporaries(dir_ / "latest").empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(Files, AFailedAtomicWriteLeavesNothing) {
  fs::create_directories(dir_ / "latest" / "in the way");
  EXPECT_THROW(write_file_atomic(dir_ / "latest", "one"), Error);
  EXPECT_FALSE(fs::exists(temporary_name(dir_ / "latest")));
}

TEST_F(Files, TreesAreRemovedWithoutFollowingLinks) {
  fs::create_directories(dir_ / "tree" / "a" / "b");
  fs::create_directories(dir_ / "kept");
  write_file_atomic(dir_ / "kept" / "file", "x");
  write_file_atomic(dir_ / "tree" / "a" / "file", "x");
  fs::create_directory_symlink(dir_ / "kept", dir_ / "tree" / "link");
  EXPECT_EQ(remove_tree(dir_ / "tree"), "");
  EXPECT_FALSE(fs::exists(dir_ / "tree"));
  EXPECT_TRUE(fs::exists(dir_ / "kept" / "file"));
  EXPECT_EQ(remove_tree(dir_ / "tree"), "");  // nothing there
}

TEST_F(Files, ATrialLeavesNothing) {
  EXPECT_TRUE(try_folder(dir_).empty());
  EXPECT_TRUE(fs::is_empty(dir_));
  EXPECT_THROW(try_folder(dir_ / "none"), Error);
  std::ofstream(dir_ / ".write-test-x1y2z3") << "x";
  remove_trials(dir_);
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(Files, MovedFilesCloseOnce) {
  File a = File::create(dir_ / "a");
  File b = std::move(a);
  EXPECT_FALSE(a.is_open());
  a = std::move(b);
  EXPECT_TRUE(a.is_open());
  a.write_at("x", 1, 0);
}

TEST(FileNames, PlainNames) {
  for (const char* name : {"a", "rank-00000.safetensors", "..a", ".hidden", "a b"})
    EXPECT_TRUE(is_plain_name(name)) << name;
  for (const std::string& name :
       {std::string(""), std::string("."), std::string(".."), std::string("../x"),
        std::string("/x"), std::string("a/b"), std::string("a\\b"), std::string("a\0b", 3)})
    EXPECT_FALSE(is_plain_name(name)) << name;
}

TEST(FileNames, CleanPaths) {
  EXPECT_EQ(clean_path("a/b/"), "a/b");
  EXPECT_EQ(clean_path("a/./b/../c"), "a/c");
  EXPECT_EQ(clean_path("/"), "/");
  EXPECT_EQ(folder_of("a"), ".");
  EXPECT_EQ(folder_of("/a/b"), "/a");
}

}  // namespace
}  // namespace tessera
