#include "config/keys/key_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/odd_characters.h"
#include "config/keys/meant.h"

namespace tessera {

std::string did_you_mean(const std::string& word) {
  return word.empty() ? "" : fmt::format("did you mean {}?", word);
}

void KeyNames::add(const Field& field, const std::string& target, bool listed) {
  names.push_back(field.name);
  names.insert(names.end(), field.aliases.begin(), field.aliases.end());
  targets.resize(names.size(), target);
  if (listed) own.push_back(field.name);
}

std::string KeyNames::target_of(const std::string& key, bool exactly) const {
  if (!exactly) {
    const std::string name = meant_word(key, names);
    return name.empty() ? "" : target_of(name, true);
  }
  const auto found = std::find(names.begin(), names.end(), key);
  return found == names.end() ? "" : targets[static_cast<size_t>(found - names.begin())];
}

std::string unknown_key(const std::string& path, const std::string& key, const std::string& target,
                        const std::string& keys_of, const std::vector<std::string>& own) {
  const std::string note = odd_characters_note(key);
  std::string hint = did_you_mean(target);
  if (const std::string_view instead = instead_of(key); !instead.empty()) hint = instead;
  return fmt::format("{}: unknown key{}{}; {}{}{}: {}", path, note.empty() ? "" : "; ", note, hint,
                     hint.empty()          ? ""
                     : hint.ends_with('?') ? " "
                                           : "; ",
                     keys_of, fmt::join(own, ", "));
}

}  // namespace tessera
