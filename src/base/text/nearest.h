#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
// string alignment). With `wildcards`, `a` is a pattern: its `*` becomes any text and its `?` any
// character at no cost, so that 0 says that `b` fits.
int edit_distance(std::string_view a, std::string_view b, bool wildcards = false);

// The index of the candidate that is nearest to `name`; -1 if none is near enough to be what was
// meant (more than a third of the name would have to change).
int nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace tessera
