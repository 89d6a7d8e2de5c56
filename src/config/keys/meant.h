#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fields/field.h"

namespace tessera {

// The one of `words` that was probably meant by `text`: the same but for capitals, look-alike
// characters or signs, or another program's word for it (`synonyms`), or a near spelling. Empty if
// none is near.
std::string meant_word(std::string_view text, const std::vector<std::string>& words,
                       const Synonyms& synonyms = {});

// For keys of other trainers that no single key here stands for: what to do instead. Empty for all
// other keys.
std::string_view instead_of(std::string_view key);

}  // namespace tessera
