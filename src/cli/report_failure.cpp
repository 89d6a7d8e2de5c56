#include "cli/report_failure.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/exit_codes.h"

namespace tessera {

int report_failure(const std::exception& error, int rank) {
  constexpr std::chrono::seconds kRankZeroFirst{2};
  if (rank > 0) std::this_thread::sleep_for(kRankZeroFirst);
  // One write: lines of several ranks must not mix.
  const std::string text = rank > 0 ? fmt::format("error: rank {}: {}\n", rank, error.what())
                                    : fmt::format("error: {}\n", error.what());
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  return dynamic_cast<const UserError*>(&error) != nullptr ? kExitUserError : kExitFailed;
}

}  // namespace tessera
