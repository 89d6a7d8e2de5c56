#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// The index of the candidate that is nearest to `name`; -1 if none is near enough to be what was
// meant (more than a third of the name would have to change).
int nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace tessera
