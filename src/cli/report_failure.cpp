#include "cli/report_failure.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/exit_codes.h"
#include "training/loop/stop_signal.h"

namespace tessera {
namespace {

// Waits for rank 0 to fail first, and says whether it did.
bool launcher_ends_us() {
  constexpr std::chrono::seconds kRankZeroFirst{2};
  constexpr std::chrono::milliseconds kLook{20};
  const bool asked_before = stop_signal_came();
  for (std::chrono::milliseconds waited{0}; waited < kRankZeroFirst; waited += kLook) {
    std::this_thread::sleep_for(kLook);
    if (!asked_before && stop_signal_came()) return true;
  }
  return false;
}

}  // namespace

int exit_code_of(const std::exception& error) {
  return dynamic_cast<const UserError*>(&error) != nullptr ? kExitUserError : kExitFailed;
}

int report_failure(const std::exception& error, int rank) {
  const int code = exit_code_of(error);
  if (rank > 0 && launcher_ends_us()) return code;
  // One write: lines of several ranks must not mix.
  const std::string text = rank > 0 ? fmt::format("error: rank {}: {}\n", rank, error.what())
                                    : fmt::format("error: {}\n", error.what());
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  return code;
}

}  // namespace tessera
