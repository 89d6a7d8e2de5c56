#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera {

// From this call on a signal that says that the program is broken (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
// SIGABRT) first writes "error: NAME was ended by SIGSEGV after step 812; stack:" and the stack to
// standard error, and then ends the process as it would have done. Only functions that may be
// called in a signal handler are used, but for backtrace(), which is prepared before. A stack that
// has overflowed is reported for the calling thread alone. Libraries that take these signals for
// themselves afterwards (UCX does) come first.
void report_crashes();

// The name of this process in such a report, "rank 3 (n2)"; at most 200 bytes.
void set_crash_name(const std::string& name);

// The last step that is done, which outlives the process's work; null: none is told.
void set_crash_step(const std::atomic<int64_t>* step);

}  // namespace tessera
