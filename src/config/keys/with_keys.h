#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace tessera {

// What `work` returns. An E that it throws ends with " (KEYS)": code below the configuration names
// a mistake in its own terms, and only here it is known which keys of the configuration mend it. E
// is made of a text, as the classes of base/error.h are.
template <typename E, typename Work>
decltype(auto) with_keys(std::string_view keys, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const E& error) {
    throw E(fmt::format("{} ({})", error.what(), keys));
  }
}

}  // namespace tessera
