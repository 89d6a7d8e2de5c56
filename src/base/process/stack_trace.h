#pragma once

#include <string>

namespace tessera {

// clang-format off
// Stacks for what nobody expected, by glibc's backtrace(). What they lack: names of this program's
// own functions, which the binary does not export; `addr2line -Cfpe build/release/tessera ADDRESS`
// gives them for the lines "tessera(+ADDRESS)". Functions that the compiler has inlined or that
// ended in a tail call do not show.
// clang-format on

// Loads what backtrace() needs, so that later calls allocate nothing. Call it once, early.
void prepare_stack_traces();

// The stack of the last throw in this thread of an exception that is not of our own classes, a line
// for each function; empty if there was none. Such a throw is noticed from the first call of
// prepare_stack_traces() on.
std::string last_throw_stack();

}  // namespace tessera
