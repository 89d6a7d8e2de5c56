#include "parallel/comm/core/abort_state.h"

#include <algorithm>

namespace tessera {

void AbortState::raise(const std::string& reason) {
  uint32_t running = 0;
  if (!words_->state.compare_exchange_strong(running, 1)) return;
  const size_t length = std::min(reason.size(), words_->reason.size() - 1);
  std::copy_n(reason.begin(), length, words_->reason.begin());
  words_->reason[length] = '\0';
  words_->state.store(2, std::memory_order_release);
}

std::string AbortState::reason() const {
  if (words_->state.load(std::memory_order_acquire) != 2) return "reason unknown";
  return words_->reason.data();
}

}  // namespace tessera
