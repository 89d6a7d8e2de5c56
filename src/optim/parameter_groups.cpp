#include "optim/parameter_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/text/name_pattern.h"

namespace tessera {
namespace {

bool fits(const ParameterGroup& group, const std::string& name) {
  return std::any_of(group.params.begin(), group.params.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

}  // namespace

void resolve_groups(const std::vector<ParameterGroup>& groups,
                    const std::vector<ParameterTable*>& tables) {
  if (groups.empty()) return;
  std::vector<Parameter*> parameters;
  std::vector<std::string> names;
  for (ParameterTable* table : tables) {
    for (Parameter& parameter : table->parameters()) {
      parameters.push_back(&parameter);
      names.push_back(parameter.spec.name);
    }
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const std::string& pattern : groups[i].params)
      check_matches_some(fmt::format("optimizer.groups[{}].params", i), pattern, names);
  }
  for (Parameter* parameter : parameters) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& g) {
      return fits(g, parameter->spec.name);
    });
    if (group == groups.end()) continue;
    parameter->spec.lr_scale = group->lr_scale;
    parameter->spec.weight_decay = group->weight_decay;
    parameter->spec.trainable = !group->frozen;
  }
  const auto trained = [](const Parameter* parameter) { return parameter->spec.trainable; };
  if (std::none_of(parameters.begin(), parameters.end(), trained))
    fail_user("config",
              "optimizer.groups freezes all {} parameters; at least one must be left to train",
              parameters.size());
}

}  // namespace tessera
