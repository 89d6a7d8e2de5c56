#include "data/data_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

class DataFiles : public testing::Test {
 protected:
  std::string write(const std::vector<int32_t>& numbers) {
    std::ofstream out(path_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(numbers.data()),
              static_cast<std::streamsize>(numbers.size() * sizeof(int32_t)));
    return path_;
  }

  TemporaryFolder folder_;
  std::string path_ = (folder_ / "numbers").string();
};

TEST_F(DataFiles, ReadsByPosition) {
  std::vector<int32_t> numbers(100000);
  std::iota(numbers.begin(), numbers.end(), -7);
  const DataFile file(write(numbers));
  EXPECT_EQ(file.size(), 400000);
  EXPECT_EQ(file.load<int32_t>(4 * 99999), 99992);
  EXPECT_EQ(file.load<uint8_t>(0), 0xf9);
  DataColumn<int32_t> column(file, 40, 99990);
  for (const int64_t i : {0, 1, 16383, 16384, 99989, 5}) EXPECT_EQ(column[i], i + 3);
}

// A mapping would end the process here.
TEST_F(DataFiles, OneThatShrinksIsAnErrorAndNoMistakeOfTheUsers) {
  const DataFile file(write({1, 2, 3}));
  std::filesystem::resize_file(path_, 4);
  EXPECT_EQ(file.load<int32_t>(0), 1);
  try {
    file.load<int32_t>(8);
    FAIL();
  } catch (const UserError& error) {
    FAIL() << error.what();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find(path_ + " has become shorter while it was read: 12 "
                                "bytes when it was opened, now 4"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(DataFiles, WhatCannotBeOpenedIsNamed) {
  EXPECT_NE(error_of([&] { const DataFile file(path_); }).find("cannot open " + path_),
            std::string::npos);
  EXPECT_NE(error_of([&] { const DataFile file(folder_.path()); }).find("not a regular file"),
            std::string::npos);
  EXPECT_NE(error_of([&] { const DataFile file(write({})); }).find("is empty: 0 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
