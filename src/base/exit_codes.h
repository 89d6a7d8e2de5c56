#pragma once

#include <exception>

namespace tessera {

// Exit codes of every command (README, "Exit codes").
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitDiffer = 1;  // of `checkpoint diff`, where what fails is 2
inline constexpr int kExitUserError = 2;
inline constexpr int kExitStopped = 3;   // stopped on request, nothing lost: start again to go on
inline constexpr int kExitReplaced = 4;  // a newer start of the same run has taken over

// The code that goes with an error (base/error.h). Anything that is not of our own classes failed.
int exit_code_of(const std::exception& error);

}  // namespace tessera
