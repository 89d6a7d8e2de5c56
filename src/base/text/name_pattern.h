#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Whether a name fits a shell-like pattern: `*` is any text, also none and also with dots, `?` is
// any one character, everything else is itself.
bool matches_pattern(std::string_view pattern, std::string_view name);

// The kinds of names that come nearest to the pattern, at most `count`, nearest first. Names that
// differ in numbers alone are one kind, written with * for each number
// (model.layers.*.norm.weight).
std::vector<std::string> near_names(std::string_view pattern, const std::vector<std::string>& names,
                                    size_t count = 3);

// UserError "[config] KEY: 'PATTERN' matches no parameter; ..." with near names, unless the pattern
// matches one. `key` is the path of the configuration key that the pattern comes from.
void check_matches_some(std::string_view key, std::string_view pattern,
                        const std::vector<std::string>& names);

}  // namespace tessera
