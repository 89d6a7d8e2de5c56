#pragma once

#include <string>
#include <vector>

#include "base/fields/field.h"
#include "config/config.h"

// The one declaration of every key: reading, defaults, rules, the resolved YAML, the difference on
// resume and the table in docs/configuration.md all come from describe().

namespace tessera {

struct Section {
  std::string name;  // empty: keys of the top level
  std::string doc;
  std::vector<Field> fields;

  std::string path(const Field& field) const {
    return name.empty() ? field.name : name + "." + field.name;
  }
};

// Every section and key in the order of documentation, bound to `config`, which must outlive it.
std::vector<Section> describe(Config& config);

}  // namespace tessera
