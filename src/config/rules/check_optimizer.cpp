#include "config/rules/check_optimizer.h"

#include <fmt/format.h>

namespace tessera {

void check_optimizer(const OptimizerConfig& o, ParamsDtype params, RuleReport& report) {
  const OptimizerConfig defaults;
  if (o.moments == MomentsDtype::kBf16 && params == ParamsDtype::kFp64) {
    report.broken(
        {"optimizer.moments", "precision.params"},
        "optimizer.moments: bf16; precision.params: fp64 is fp64 throughout, moments too; "
        "remove the key");
  }
  if (o.type == OptimizerType::kSgd) {
    if (o.beta1 != defaults.beta1 || o.beta2 != defaults.beta2 || o.eps != defaults.eps) {
      report.broken({"optimizer.type", "optimizer.betas", "optimizer.eps"},
                    "optimizer.type: sgd; it has neither betas nor eps; remove them, or set "
                    "optimizer.type: adamw or adam");
    }
    if (o.nesterov && o.momentum == 0) {
      report.broken({"optimizer.nesterov", "optimizer.momentum", "optimizer.type"},
                    "optimizer.nesterov: true; it needs optimizer.momentum above 0, which is {}",
                    o.momentum);
    }
    if (o.momentum == 0 && o.moments != defaults.moments) {
      report.broken(
          {"optimizer.moments", "optimizer.momentum", "optimizer.type"},
          "optimizer.moments: bf16; sgd with optimizer.momentum 0 keeps no moments; remove "
          "the key or set a momentum");
    }
  } else if (o.momentum != 0 || o.nesterov) {
    report.broken(
        {"optimizer.momentum", "optimizer.nesterov", "optimizer.type"},
        "optimizer.momentum: {}, nesterov: {}; only optimizer.type: sgd has them; adam's and "
        "adamw's are optimizer.betas",
        o.momentum, o.nesterov);
  }
  for (size_t i = 0; i < o.groups.size(); ++i) {
    const ParameterGroup& group = o.groups[i];
    if (group.params.empty()) {
      report.broken({fmt::format("optimizer.groups[{}].params", i)},
                    "optimizer.groups[{}].params: []; must be at least one name pattern", i);
    }
    if (group.frozen && (group.lr_scale != 1.0 || group.weight_decay)) {
      report.broken(
          {fmt::format("optimizer.groups[{}].frozen", i)},
          "optimizer.groups[{}].frozen: true; frozen parameters have no update that lr_scale "
          "or weight_decay could change; remove those keys",
          i);
    }
  }
}

}  // namespace tessera
