#pragma once

#include <exception>

namespace tessera {

// The exit code that goes with an error: kExitUserError or kExitFailed.
int exit_code_of(const std::exception& error);

// Prints "error: ..." to stderr and returns the exit code that goes with the error.
//
// A mistake that all ranks find should be printed once. So rank 0 prints at once; the others wait a
// moment. If rank 0 has failed too, the launcher ends them in that time with SIGTERM (which a rank
// of `train` has caught as a request to stop). A rank that gets no SIGTERM prints: the failure is
// its own.
int report_failure(const std::exception& error, int rank);

}  // namespace tessera
