#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace tessera {

// Counts the bytes that threads have done of a total, and shows the count after each part.
class ByteProgress {
 public:
  // Called by several threads at once.
  using Show = std::function<void(int64_t done, int64_t total)>;

  ByteProgress(int64_t total, Show show) : total_(total), show_(std::move(show)) {}

  void add(int64_t bytes) {
    const int64_t done = done_ += bytes;
    if (show_) show_(done, total_);
  }

 private:
  const int64_t total_;
  const Show show_;
  std::atomic<int64_t> done_{0};
};

}  // namespace tessera
