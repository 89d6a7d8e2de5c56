#pragma once

#include <filesystem>

#include "config/config.h"
#include "config/yaml_tree.h"

namespace tessera {

// Turns a configuration's tree into a Config. `base` is the folder that model.config of a file is
// relative to. UserError "[config] WHERE: KEY: VALUE; the rule; the fix".
Config decode_config(const YamlNode& root, const std::filesystem::path& base);

}  // namespace tessera
