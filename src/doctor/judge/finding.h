#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::doctor {

// kWarning: a run works, but slowly or not as it was meant. kError: it fails, or computes something
// else.
enum class Level { kOk, kWarning, kError };

NLOHMANN_JSON_SERIALIZE_ENUM(Level, {{Level::kOk, "ok"},
                                     {Level::kWarning, "warning"},
                                     {Level::kError, "error"}})

// Something that is worth a person's attention. kOk: it may be surprising, and is all right.
struct Finding {
  Level level = Level::kOk;
  std::string section;
  std::string what;  // with a number, and the ranks and hosts that it is about
  std::string next;  // the next thing to try
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, level, section, what, next)

using Findings = std::vector<Finding>;

}  // namespace tessera::doctor
