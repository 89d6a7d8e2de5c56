#pragma once

#include <filesystem>

#include "config/config.h"
#include "config/keys/key_places.h"
#include "config/yaml/mistakes.h"
#include "config/yaml/yaml_tree.h"

namespace tessera {

// Turns a configuration's tree into a Config, and says in `places` where each key stands. `base` is
// the folder that model.config of a file is relative to. Adds to `mistakes` "KEY: VALUE; the rule;
// the fix" for each key that is unknown, missing or has a wrong value; it keeps its default. Throws
// all mistakes if the tree is no configuration at all.
Config decode_config(const YamlNode& root, const std::filesystem::path& base, KeyPlaces& places,
                     Mistakes& mistakes);

}  // namespace tessera
