#pragma once

#include <string>
#include <vector>

#include "base/fields/field.h"

namespace tessera {

// "did you mean WORD?"; empty for an empty word.
std::string did_you_mean(const std::string& word);

// The names by which a key may have been meant, for "did you mean": its own and those of other
// programs (Field::aliases).
struct KeyNames {
  std::vector<std::string> own;             // the keys that a message lists
  std::vector<std::string> names, targets;  // targets[i]: what to suggest for names[i]

  // Adds the field's name and aliases. `target`: what to suggest for them, such as the whole path
  // of the key. `listed`: messages list it too.
  void add(const Field& field, const std::string& target, bool listed);
  // The target of the name `key` or, unless `exactly`, of the name that was probably meant by it
  // (meant.h); empty if there is none.
  std::string target_of(const std::string& key, bool exactly) const;
};

// The message for an unknown key at `path`. `target`: what was probably meant, empty if nothing is
// near. It ends with the text `keys_of`, a colon and the keys `own`.
std::string unknown_key(const std::string& path, const std::string& key, const std::string& target,
                        const std::string& keys_of, const std::vector<std::string>& own);

}  // namespace tessera
