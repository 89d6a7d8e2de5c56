#pragma once

#include <set>
#include <string>

#include "base/fields/field.h"
#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Whether the field at `path` has a value that it may have; reports it if not. (Configurations made
// in code have not been through the reader.)
bool check_field(const std::string& path, const Field& field, RuleReport& report);

// All fields. Returns the sections with a value that they cannot have: rules between keys may not
// compute with it.
std::set<std::string> check_fields(Config config, RuleReport& report);

}  // namespace tessera
