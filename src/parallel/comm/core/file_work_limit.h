#pragma once

#include <string_view>

namespace tessera {

// What the Error of a wait that took too long says where its limit was that of work on files
// (WaitLimits::file_work). Such errors come to the caller as text, from other threads and ranks:
// whoever knows how the user sets the limit finds them by these words.
inline constexpr std::string_view kFileWorkLimit = "the limit of file work";

}  // namespace tessera
