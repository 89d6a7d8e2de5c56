#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "config/config.h"

namespace tessera {

// The resolved configuration: every key with its value, readable by load_config() again.
std::string to_yaml(const Config& config);
nlohmann::json to_json(const Config& config);

}  // namespace tessera
