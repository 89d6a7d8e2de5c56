#pragma once

#include <exception>

#include "training/output/start_record.h"

namespace tessera {

// Prints "error: ..." to stderr and returns the exit code that goes with the error.
//
// A mistake that all ranks find should be printed once. So rank 0 prints at once; the others wait a
// moment. If rank 0 has failed too, the launcher ends them in that time with SIGTERM (which a rank
// of `train` has caught as a request to stop). A rank that gets no SIGTERM prints: the failure is
// its own.
int report_failure(const std::exception& error, int rank);

// The same for an error of `train` before MPI has started: in the command line, the configuration,
// the environment. Not every launcher ends the other ranks, so all ranks, those that found nothing
// wrong as well, meet in MPI (MpiRuntime::find_refusal()), and the first that has an error prints
// it; rank 0 does so before. If they do not meet within 10 s, the process prints its error and
// ends.
int report_before_mpi(const std::exception& error);

// How the words of a rank of `train` reach a person: on stderr.
StartRecord::Voice voice_of_rank();

}  // namespace tessera
