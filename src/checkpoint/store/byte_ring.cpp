#include "checkpoint/store/byte_ring.h"

#include <algorithm>

namespace tessera {

std::span<std::byte> ByteRing::room() {
  std::unique_lock lock(mutex_);
  if (filled_ - taken_ == size()) {
    emptying_ = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return given_up_ || filled_ - taken_ < size(); });
  if (given_up_) return {};
  const int64_t at = filled_ % size();
  const int64_t free = size() - (filled_ - taken_);
  return memory_.subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(free, size() - at)));
}

void ByteRing::filled(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  filled_ += bytes;
  if (emptying_) changed_.notify_all();
}

void ByteRing::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::span<const std::byte> ByteRing::front() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || (emptying_ && filled_ > taken_); });
  const int64_t at = taken_ % size();
  return memory_.subspan(static_cast<size_t>(at),
                         static_cast<size_t>(std::min(filled_ - taken_, size() - at)));
}

void ByteRing::taken(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_ += bytes;
  changed_.notify_all();
}

void ByteRing::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

}  // namespace tessera
