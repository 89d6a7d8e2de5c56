#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace tessera {

// The flag itself: plain words without pointers, so that it may lie in memory shared by processes.
struct AbortWords {
  std::atomic<uint32_t> state{0};  // 0 running, 1 somebody writes the reason, 2 the reason is there
  std::array<char, 1020> reason{};
};

// What the waits of a world depend on: a flag, raised once, that ends them all. All communicators
// of one world and, where memory is shared, all ranks look at the same flag.
class AbortState {
 public:
  AbortState() : words_(&own_) {}
  // `shared` is zeroed memory that outlives this object.
  explicit AbortState(AbortWords* shared) : words_(shared) {}
  AbortState(const AbortState&) = delete;
  AbortState& operator=(const AbortState&) = delete;

  // Sets the flag for good. Of several reasons the first stays.
  void raise(const std::string& reason);
  bool raised() const { return words_->state.load(std::memory_order_acquire) != 0; }
  std::string reason() const;

 private:
  AbortWords own_;
  AbortWords* words_;
};

}  // namespace tessera
