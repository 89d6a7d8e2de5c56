#include "parallel/keep_fp32.h"

#include "base/error.h"
#include "base/text/name_pattern.h"

namespace tessera {
namespace {

void check_packs(std::string_view key, ParameterTable& table) {
  for (const ParameterPack& pack : table.packs()) {
    const ParameterSpec& first = pack.parts[0]->spec;
    for (const Parameter* part : pack.parts)
      if (part->spec.keep_fp32 != first.keep_fp32)
        fail_user("parameter",
                  "only one of {} and {} is kept in fp32; one matrix product serves both, so name "
                  "both or neither in {}",
                  first.name, part->spec.name, key);
  }
}

}  // namespace

void resolve_keep_fp32(std::string_view key, const std::vector<std::string>& patterns,
                       const std::vector<ParameterTable*>& tables) {
  std::vector<std::string> names;
  for (const ParameterTable* table : tables)
    for (const Parameter& parameter : table->parameters()) names.push_back(parameter.spec.name);
  for (const std::string& pattern : patterns) {
    check_matches_some(key, pattern, names);
    for (ParameterTable* table : tables)
      for (Parameter& parameter : table->parameters())
        if (matches_pattern(pattern, parameter.spec.name)) parameter.spec.keep_fp32 = true;
  }
  for (ParameterTable* table : tables) check_packs(key, *table);
}

}  // namespace tessera
