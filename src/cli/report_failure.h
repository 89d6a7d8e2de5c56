#pragma once

#include <exception>

namespace tessera {

// Prints "error: ..." to stderr and returns the exit code that goes with the error.
//
// A mistake that all ranks find should be printed once. Rank 0 prints at once; the others wait a
// moment, in which the launcher ends them if rank 0 failed too (its SIGTERM is the sign; `train`
// takes that for a request to stop), and print (with their rank) only if none comes, that is, if
// the failure is their own.
int report_failure(const std::exception& error, int rank);

}  // namespace tessera
