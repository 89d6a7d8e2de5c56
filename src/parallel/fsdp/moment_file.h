#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/fsdp/moment_store.h"

namespace tessera {

// clang-format off
// Moments in a memory-mapped file on a local disk (as ZeRO-Infinity does, Rajbhandari et al. 2021),
// streamed while the optimizer walks over the buckets:
//
//   update of bucket i    read-ahead of i + 1 runs | write-back of i - 1 runs, its pages have left
//
// so that a rank holds about three buckets' moments, however many there are. The file has no name
// once it is open: whatever ends the process, the space is free again. Checkpoints are written from
// the mapping as from any memory.
// clang-format on
class MomentFile : public MomentStore {
 public:
  // A file of `bytes` bytes in `folder`, all of them reserved now. UserError if `bytes` is 0, if
  // there is no such folder or it cannot be written, if it lies in memory itself (tmpfs: nothing
  // would be saved), or if its file system has less space.
  MomentFile(const std::filesystem::path& folder, int64_t bytes);
  ~MomentFile() override;
  MomentFile(const MomentFile&) = delete;
  MomentFile& operator=(const MomentFile&) = delete;

  // Error if the file is too small.
  StoredMoments add_bucket(int count, int64_t numel, at::ScalarType dtype) override;
  void begin(int bucket) override;
  void end(int bucket) noexcept override;
  void release() override;

  // Where the file system cannot map files, the moments stay in ordinary memory, and this says so;
  // else empty.
  const std::string& warning() const { return warning_; }

 private:
  struct Region {
    int64_t offset;
    int64_t bytes;
  };

  void read_ahead(const Region& region) const;
  void close_file() noexcept;
  void write_back(const Region& region, unsigned flags) noexcept;
  void leave(const Region& region) noexcept;
  void forget(const Region& region) noexcept;

  std::string folder_;
  std::string name_;  // empty: the file has none any more
  std::string warning_;
  int file_ = -1;  // -1: the moments lie in ordinary memory (warning())
  int64_t bytes_;
  std::byte* memory_ = nullptr;
  std::vector<Region> regions_;
  int64_t used_ = 0;
  int last_ = -1;  // the bucket whose write-back may still run
  int error_ = 0;  // the errno of the first write-back that failed
};

}  // namespace tessera
