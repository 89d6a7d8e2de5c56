#pragma once

#include <string>
#include <vector>

#include "base/fields/field.h"

namespace tessera {

// "did you mean WORD?"; empty for an empty word.
std::string did_you_mean(const std::string& word);

// What keys there are, with the names that others give them, for "did you mean".
struct KeyNames {
  std::vector<std::string> own;  // as they are listed
  std::vector<std::string> names, targets;

  // `target`: what to use in its place, such as its whole path.
  void add(const Field& field, const std::string& target, bool listed);
  // By exactly this name, or by one that is near.
  std::string target_of(const std::string& key, bool exactly) const;
};

// The message of a key that there is not: `target` may have been meant; `keys_of` and `own` say
// which there are.
std::string unknown_key(const std::string& path, const std::string& key, const std::string& target,
                        const std::string& keys_of, const std::vector<std::string>& own);

}  // namespace tessera
