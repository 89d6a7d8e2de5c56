#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace tessera {

// Words in memory that several processes (or threads) share. Waiters sleep on a futex, which works
// on any mapping of the same page; lock-free atomics work across processes.
using SharedWord = std::atomic<uint32_t>;
static_assert(SharedWord::is_always_lock_free);
// A number that is written before a wake-up and read after it.
using SharedNumber = std::atomic<int64_t>;
static_assert(SharedNumber::is_always_lock_free);

// Sleeps while `word` equals `expected`, for 20 ms at most: long enough to cost nothing, short
// enough to notice an abort or a time-out.
void sleep_while_equal(SharedWord& word, uint32_t expected);
void wake_sleepers(SharedWord& word);

// Waits until `reached(word)`; calls `check()` between sleeps, which may throw. The waker must
// change `word`, then call wake_if_sleeping with the same pair.
template <typename Reached, typename Check>
void wait_on(SharedWord& word, SharedWord& sleepers, Reached&& reached, Check&& check);
void wake_if_sleeping(SharedWord& word, SharedWord& sleepers);

template <typename Reached, typename Check>
void wait_on(SharedWord& word, SharedWord& sleepers, Reached&& reached, Check&& check) {
  uint32_t seen = word.load(std::memory_order_acquire);
  while (!reached(seen)) {
    check();
    // Announced before the kernel looks at the word again: either the waker sees the sleeper, or
    // the kernel sees the new word.
    sleepers.fetch_add(1);
    sleep_while_equal(word, seen);
    sleepers.fetch_sub(1);
    seen = word.load(std::memory_order_acquire);
  }
}

}  // namespace tessera
