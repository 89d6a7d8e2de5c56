#include "parallel/keep_fp32.h"

#include "base/text/name_pattern.h"

namespace tessera {

void resolve_keep_fp32(const std::vector<std::string>& patterns,
                       const std::vector<ParameterTable*>& tables) {
  std::vector<std::string> names;
  for (const ParameterTable* table : tables)
    for (const Parameter& parameter : table->parameters()) names.push_back(parameter.spec.name);
  for (const std::string& pattern : patterns) {
    check_matches_some("precision.keep_fp32", pattern, names);
    for (ParameterTable* table : tables)
      for (Parameter& parameter : table->parameters())
        if (matches_pattern(pattern, parameter.spec.name)) parameter.spec.keep_fp32 = true;
  }
}

}  // namespace tessera
