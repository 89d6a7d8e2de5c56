#pragma once

#include <string_view>

namespace tessera {

// The words in the Error of a wait that timed out at the limit of file work (WaitLimits::file_work)
// rather than at the usual one. Such errors come to the caller as text, from other threads and
// ranks: the code that knows how the user sets the limit recognises them by these words.
inline constexpr std::string_view kFileWorkLimit = "the limit of file work";

}  // namespace tessera
