#include "config/rules/check_precision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "base/fields/field_kinds.h"

namespace tessera {
namespace {

void check_dtypes(const PrecisionSection& p, RuleReport& report) {
  const bool half = p.params == ParamsDtype::kBf16 || p.params == ParamsDtype::kFp16;
  if (p.reduce != ReduceDtype::kFp32 &&
      (p.params == ParamsDtype::kFp64 || p.params == ParamsDtype::kFp16)) {
    report.broken(
        {"precision.reduce", "precision.params"},
        "precision.reduce: bf16 travels, but precision.params is {}; leave reduce at fp32",
        p.params == ParamsDtype::kFp64 ? "fp64, which is fp64 throughout (fp32 then means fp64)"
                                       : "fp16, whose gradients bf16 would round");
  }
  if (p.params == ParamsDtype::kFp64) {
    const std::pair<const char*, bool> others[] = {{"output", p.output != OutputDtype::kParams},
                                                   {"buffers", p.buffers != BufferDtype::kFp32}};
    for (const auto& [key, differs] : others)
      if (differs)
        report.broken({std::string("precision.") + key, "precision.params"},
                      "precision.{}: differs from params, but precision.params: fp64 is fp64 "
                      "throughout; leave it out",
                      key);
  }
  if (p.params == ParamsDtype::kFp16 && p.output == OutputDtype::kBf16) {
    report.broken(
        {"precision.output", "precision.params"},
        "precision.output: bf16; precision.params is fp16, and two kinds of halves would round "
        "twice; params or fp32 work");
  }
  if (!half && !p.keep_fp32.empty()) {
    report.broken(
        {"precision.keep_fp32", "precision.params"},
        "precision.keep_fp32: [{}]; precision.params is {} already; it needs params bf16 or "
        "fp16, leave it out",
        fmt::join(p.keep_fp32, ", "), p.params == ParamsDtype::kFp32 ? "fp32" : "fp64");
  }
}

void check_loss_scale(const PrecisionSection& p, RuleReport& report) {
  const LossScaleConfig& l = p.loss_scale;
  const LossScaleConfig defaults;
  const bool fp16 = is_fp16(p);
  if (!fp16 && l.mode != LossScaleMode::kAuto) {
    report.broken(
        {"precision.loss_scale", "precision.params"},
        "precision.loss_scale: {}; only precision.params: fp16 has a range so small that the "
        "loss must be scaled; remove the key",
        l.mode == LossScaleMode::kDynamic ? "dynamic" : real_text(l.value));
  }
  if (fp16 && l.mode != LossScaleMode::kStatic) return;
  if (l.initial != defaults.initial || l.growth_interval != defaults.growth_interval ||
      l.hysteresis != defaults.hysteresis) {
    report.broken(
        {"precision.initial_loss_scale", "precision.loss_scale_growth_interval",
         "precision.loss_scale_hysteresis", "precision.loss_scale", "precision.params"},
        "precision.initial_loss_scale, loss_scale_growth_interval, loss_scale_hysteresis: {}, "
        "{}, {}; they belong to a dynamic loss scale, which precision.params: fp16 with "
        "loss_scale: dynamic has; remove them",
        real_text(l.initial), l.growth_interval, l.hysteresis);
  }
}

void check_buffers(const Config& c, RuleReport& report) {
  if (c.precision.buffers == BufferDtype::kFp32) return;
  if (!c.model->keys_of(KeyRole::kRotaryBase).empty()) return;
  report.broken(
      {"precision.buffers", "model"},
      "precision.buffers: bf16; they are tables of rotary positions, and model.type {} has "
      "none; remove it",
      c.model->type());
}

}  // namespace

void check_precision(const Config& config, RuleReport& report) {
  check_dtypes(config.precision, report);
  check_buffers(config, report);
  check_loss_scale(config.precision, report);
}

}  // namespace tessera
