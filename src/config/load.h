#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/keys/key_places.h"

namespace tessera {

// A configuration and where its keys were given.
struct LoadedConfig {
  Config config;
  KeyPlaces places;
};

// Reads a YAML file strictly (docs/configuration.md) and applies `overrides` ("a.b=value", the
// value read as YAML by the same rules). What is wrong goes to `mistakes`, and the keys at fault
// keep their defaults; UserError where nothing more can be read.
LoadedConfig read_config(const std::filesystem::path& file,
                         const std::vector<std::string>& overrides, Mistakes& mistakes);

// The same; UserError "[config] FILE:LINE:COLUMN: ..." with all mistakes, if there are any.
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

}  // namespace tessera
