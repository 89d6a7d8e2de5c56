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

// A place other than the device's ordinary memory for what an update reads and writes. An update
// takes the buckets in the order in which they were added, one at a time, so a store need keep only
// a few of them at hand.
class UpdateStore {
 public:
  virtual ~UpdateStore() = default;

  // An update of bucket number `bucket` starts and ends. begin() throws if something has gone wrong
  // since the last one.
  virtual void begin(int bucket) = 0;
  virtual void end(int bucket) noexcept = 0;

  // Called before and after states are read or written outside of updates, by checkpoints: waits
  // until what updates wrote is there, and gives back memory that reading has taken.
  virtual void release() = 0;
};

// One for the moments alone.
class MomentStore : public UpdateStore {
 public:
  // Each bucket's part of the store starts at a multiple of it: a multiple of the page size of
  // every processor.
  static constexpr int64_t kAlignment = int64_t{1} << 16;
  // Bytes of the part of a bucket whose moments have `bytes` bytes together.
  static int64_t bucket_bytes(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // `count` tensors [numel] of zeros, valid as long as the store. They may be read and written at
  // any time; between begin() and end() that is fast.
  virtual StoredMoments add_bucket(int count, int64_t numel, at::ScalarType dtype) = 0;
};

// One update of one bucket: begin() and end() as a scope.
class StoreUse {
 public:
  StoreUse() = default;  // everything lies in the device's ordinary memory
  StoreUse(UpdateStore& store, int bucket) : store_(&store), bucket_(bucket) {
    store.begin(bucket);
  }
  StoreUse(StoreUse&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), bucket_(other.bucket_) {}
  StoreUse& operator=(StoreUse&&) = delete;
  ~StoreUse() {
    if (store_) store_->end(bucket_);
  }

 private:
  UpdateStore* store_ = nullptr;
  int bucket_ = 0;
};

}  // namespace tessera
