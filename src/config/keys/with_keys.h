#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/error_kinds.h"

namespace tessera {

// Runs `work` and returns its result. If it throws an E, throws an E with "(KEYS)" at the end of
// the text: code below the configuration names a mistake in its own terms, and only the caller
// knows which keys of the configuration mend it. E is made of a text, as the classes of
// base/error.h are.
template <typename E, typename Work>
decltype(auto) with_keys(std::string_view keys, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const E& error) {
    throw_with_text<E>(error, fmt::format("{} ({})", error.what(), keys));
  }
}

}  // namespace tessera
