// Files that appear late, as those of other nodes do on a network file system.
#include "base/files/late_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "support/temporary_folder.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

class LateFiles : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_) << text; }

  TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "file";
};

TEST_F(LateFiles, WhatIsThereIsSeenAtOnce) {
  write("12345");
  EXPECT_TRUE(wait_until_visible(path_, std::nullopt, milliseconds(0)));
  EXPECT_TRUE(wait_until_visible(path_, 5, milliseconds(0)));
  EXPECT_TRUE(wait_until_visible(folder_.path(), std::nullopt, milliseconds(0)));
}

TEST_F(LateFiles, WhatIsNotThereOrNotWholeIsNotSeen) {
  EXPECT_FALSE(wait_until_visible(path_, std::nullopt, milliseconds(30)));
  write("1234");
  EXPECT_FALSE(wait_until_visible(path_, 5, milliseconds(30)));
  EXPECT_FALSE(wait_until_visible(folder_.path(), 5, milliseconds(0)));  // a folder is no file
  EXPECT_FALSE(wait_until_visible(folder_ / "no/such/folder", std::nullopt, milliseconds(30)));
}

TEST_F(LateFiles, WhatComesAndGrowsInTimeIsSeen) {
  std::thread writer([this] {
    std::this_thread::sleep_for(milliseconds(30));
    write("12");
    std::this_thread::sleep_for(milliseconds(30));
    write("12345");
  });
  EXPECT_TRUE(wait_until_visible(path_, 5));
  writer.join();
}

}  // namespace
}  // namespace tessera
