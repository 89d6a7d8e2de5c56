#include "parallel/comm/shm/shared_words.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace tessera {
namespace {

long futex(SharedWord& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr,
                 0);
}

}  // namespace

void sleep_while_equal(SharedWord& word, uint32_t expected) {
  constexpr timespec kSlice{0, 20'000'000};
  futex(word, FUTEX_WAIT, expected, &kSlice);  // also returns early; the caller looks again
}

void wake_sleepers(SharedWord& word) {
  futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

void wake_if_sleeping(SharedWord& word, SharedWord& sleepers) {
  if (sleepers.load() != 0) wake_sleepers(word);
}

}  // namespace tessera
