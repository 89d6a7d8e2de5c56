#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace tessera {

// Bytes on their way from one thread to another, in order, through a ring of fixed memory. The
// thread that fills waits where the ring is full; the one that empties it begins when the ring is
// full or all bytes are there, so that it takes no processor from the one that fills while there is
// room for all.
//
//   fills     room() -> write into it -> filled(n) ... end()
//   empties   front() -> read it      -> taken(n)  ... front() is empty after the last byte
class ByteRing {
 public:
  // `memory` outlives the ring and is not empty.
  explicit ByteRing(std::span<std::byte> memory) : memory_(memory) {}
  ByteRing(const ByteRing&) = delete;
  ByteRing& operator=(const ByteRing&) = delete;

  // Free memory in one piece; waits until there is some. Empty: the other thread has given up.
  std::span<std::byte> room();
  void filled(int64_t bytes);
  // No byte comes any more.
  void end();

  // The oldest bytes, in one piece; waits for them. Empty: all have been taken after end().
  std::span<const std::byte> front();
  void taken(int64_t bytes);
  // No byte is taken any more: room() returns, now and later.
  void give_up();

 private:
  int64_t size() const { return static_cast<int64_t>(memory_.size()); }

  const std::span<std::byte> memory_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  int64_t filled_ = 0;  // bytes since the beginning
  int64_t taken_ = 0;
  bool emptying_ = false;  // since the ring was full for the first time
  bool ended_ = false;
  bool given_up_ = false;
};

}  // namespace tessera
