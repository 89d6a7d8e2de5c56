#pragma once

namespace tessera {

// Exit codes of every command (README, "Exit codes").
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitDiffer = 1;  // of `checkpoint diff`, where what fails is 2
inline constexpr int kExitUserError = 2;
inline constexpr int kExitStopped = 3;  // stopped on request, nothing lost: start again to go on

}  // namespace tessera
