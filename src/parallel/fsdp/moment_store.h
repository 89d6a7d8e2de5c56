#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera {

struct StoredMoments {
  int bucket;  // its number in the store
  std::vector<at::Tensor> moments;
};

// A place other than ordinary memory for the optimizer's moments. An update takes the buckets in
// the order in which they were added, one at a time; a store may so keep few of them at hand.
class MomentStore {
 public:
  // Of each bucket's part of the store: pages of every processor divide it.
  static constexpr int64_t kAlignment = int64_t{1} << 16;
  // What a bucket takes whose moments have `bytes` bytes together.
  static int64_t bucket_bytes(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  virtual ~MomentStore() = default;

  // `count` tensors [numel] of zeros, valid as long as the store. They may be read and written at
  // any time; between begin() and end() that is fast.
  virtual StoredMoments add_bucket(int count, int64_t numel, at::ScalarType dtype) = 0;

  // An update of bucket number `bucket` starts and ends. begin() throws what went wrong since.
  virtual void begin(int bucket) = 0;
  virtual void end(int bucket) noexcept = 0;

  // After moments were read or written outside of updates (checkpoints): memory that they took may
  // go.
  virtual void release() = 0;
};

// One update of one bucket's moments: begin() and end() as a scope.
class MomentUse {
 public:
  MomentUse() = default;  // moments in ordinary memory
  MomentUse(MomentStore& store, int bucket) : store_(&store), bucket_(bucket) {
    store.begin(bucket);
  }
  MomentUse(MomentUse&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), bucket_(other.bucket_) {}
  MomentUse& operator=(MomentUse&&) = delete;
  ~MomentUse() {
    if (store_) store_->end(bucket_);
  }

 private:
  MomentStore* store_ = nullptr;
  int bucket_ = 0;
};

}  // namespace tessera
