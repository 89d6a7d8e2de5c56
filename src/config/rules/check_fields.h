#pragma once

#include <set>
#include <string>

#include "base/fields/field.h"
#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Whether the value of the field at `path` obeys the field's own rule; reports it if not. (The
// reader checks that too, but configurations that are made in code have not been through it.)
bool check_field(const std::string& path, const Field& field, RuleReport& report);

// Checks all fields. Returns the names of the sections that hold a wrong value: rules between keys
// must not compute with these.
std::set<std::string> check_fields(Config config, RuleReport& report);

}  // namespace tessera
