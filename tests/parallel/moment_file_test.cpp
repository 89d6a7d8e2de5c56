#include "parallel/fsdp/moment_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "base/error.h"
#include "support/folders.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

// The build folder lies on a disk, which a system's folder for temporary files need not.
class MomentFileTest : public testing::Test {
 protected:
  MomentFileTest() {
    setenv("TMPDIR", TESSERA_BINARY_DIR, 1);
    folder_.emplace();
  }
  const std::filesystem::path& folder() const { return folder_->path(); }

 private:
  std::optional<TemporaryFolder> folder_;
};

// What this process holds of files and of anonymous memory.
int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib * 1024;
  }
  return -1;
}

std::string error_of(const std::filesystem::path& folder, int64_t bytes) {
  try {
    MomentFile file(folder, bytes);
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
}

TEST_F(MomentFileTest, KeepsItsNumbersThroughUpdates) {
  constexpr int64_t kNumel = 100 * 64;
  MomentFile file(folder(), 2 * MomentStore::bucket_bytes(2 * 4 * kNumel) +
                                MomentStore::bucket_bytes(2 * kNumel));
  const std::vector<StoredMoments> buckets = {file.add_bucket(2, kNumel, at::kFloat),
                                              file.add_bucket(2, kNumel, at::kFloat),
                                              file.add_bucket(1, kNumel, at::kBFloat16)};
  for (const auto& [bucket, moments] : buckets)
    for (const auto& moment : moments) EXPECT_TRUE(at::equal(moment, at::zeros_like(moment)));
  for (int step = 1; step <= 3; ++step) {
    for (const auto& [bucket, moments] : buckets) {
      const StoreUse use(file, bucket);
      for (size_t i = 0; i < moments.size(); ++i)
        at::Tensor(moments[i]).add_(static_cast<double>(bucket) + 0.5 * static_cast<double>(i));
    }
    if (step == 2) file.release();
  }
  for (const auto& [bucket, moments] : buckets)
    for (size_t i = 0; i < moments.size(); ++i)
      EXPECT_TRUE(
          at::equal(moments[i], at::full_like(moments[i], 3 * (static_cast<double>(bucket) +
                                                               0.5 * static_cast<double>(i)))));
}

TEST_F(MomentFileTest, HasNoNameThatACrashCouldLeave) {
  MomentFile file(folder(), 1 << 20);
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

// 16 buckets of 8 MiB: without the store's coming and going all 128 MiB would stay.
TEST_F(MomentFileTest, StaysResidentWithAFewBucketsAlone) {
  constexpr int kBuckets = 16;
  constexpr int64_t kBytes = 8 << 20;
  MomentFile file(folder(), kBuckets * kBytes);
  std::vector<StoredMoments> buckets;
  for (int i = 0; i < kBuckets; ++i) buckets.push_back(file.add_bucket(2, kBytes / 8, at::kFloat));
  const int64_t before = resident_bytes();
  int64_t most = 0;
  for (int step = 0; step < 2; ++step) {
    for (const auto& [bucket, moments] : buckets) {
      const StoreUse use(file, bucket);
      for (const auto& moment : moments) at::Tensor(moment).add_(1);
      most = std::max(most, resident_bytes() - before);
    }
  }
  EXPECT_GE(most, kBytes / 2);
  EXPECT_LE(most, 3 * kBytes);
  // A checkpoint reads them all.
  double sum = 0;
  for (const auto& [bucket, moments] : buckets)
    for (const auto& moment : moments) sum += moment.sum().item<double>();
  EXPECT_EQ(sum, 2.0 * kBuckets * kBytes / 4);
  EXPECT_GE(resident_bytes() - before, kBuckets * kBytes / 2);
  file.release();
  EXPECT_LE(resident_bytes() - before, kBytes);
}

TEST_F(MomentFileTest, RefusesWhatCannotWork) {
  expect_parts(error_of(folder() / "absent", 1 << 20),
               {"absent", "No such file", "existing folder"});
  expect_parts(error_of(folder(), int64_t{1} << 60),
               {"1152921504606846976 bytes", folder().string(), "are free"});
  expect_parts(error_of("/dev/shm", 1 << 20), {"/dev/shm lies in memory (tmpfs)"});
  expect_parts(error_of(folder(), 0), {folder().string(), "no moments"});
  MomentFile file(folder(), 1 << 16);
  EXPECT_THROW(file.add_bucket(2, 1 << 16, at::kFloat), Error);
}

}  // namespace
}  // namespace tessera
