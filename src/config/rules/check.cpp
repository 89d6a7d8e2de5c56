#include "config/rules/check.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>

#include "base/fields/field_kinds.h"
#include "config/keys/key_places.h"
#include "config/rules/check_data.h"
#include "config/rules/check_device.h"
#include "config/rules/check_fields.h"
#include "config/rules/check_inject.h"
#include "config/rules/check_optimizer.h"
#include "config/rules/check_parallel.h"
#include "config/rules/check_precision.h"
#include "config/rules/resume.h"

namespace tessera {
namespace {

void check_memory(const Config& c, RuleReport& report) {
  if (c.parallel.sequence_parallel && c.memory.loss_chunk % c.parallel.tp != 0) {
    report.broken(
        {"memory.loss_chunk", "parallel.sequence_parallel", "parallel.tp"},
        "memory.loss_chunk: {}; with parallel.sequence_parallel a chunk has as many tokens "
        "of each of the {} ranks of tp; multiples of {} work, such as {}",
        c.memory.loss_chunk, c.parallel.tp, c.parallel.tp,
        (c.memory.loss_chunk / c.parallel.tp + 1) * c.parallel.tp);
  }
  if (c.memory.recompute != Recompute::kFull && c.memory.recompute_every != 1) {
    report.broken(
        {"memory.recompute_every", "memory.recompute"},
        "memory.recompute_every: {}; it needs memory.recompute: full; leave it out or set "
        "that",
        c.memory.recompute_every);
  }
  if (c.memory.offload != Offload::kNone && c.device == "cpu") {
    report.broken(
        {"memory.offload", "device"},
        "memory.offload: {}; with device: cpu all states lie in the host's memory already; "
        "leave it out, or set memory.offload_dir to put the optimizer's moments on a disk",
        c.memory.offload == Offload::kAll ? "all" : "optimizer");
  } else if (c.memory.offload == Offload::kAll &&
             (c.parallel.zero < 2 || c.parallel.reduce_per_micro_batch == AutoFlag::kFalse)) {
    report.broken(
        {"memory.offload", "parallel.zero", "parallel.reduce_per_micro_batch"},
        "memory.offload: all; gradients that are kept in full between reductions (parallel."
        "zero {}, reduce_per_micro_batch {}) stay on the GPU; set zero: 2 or 3 with "
        "reduce_per_micro_batch: auto, or memory.offload: optimizer",
        c.parallel.zero, c.parallel.reduce_per_micro_batch == AutoFlag::kFalse ? "false" : "auto");
  }
  const bool moments = c.optimizer.type != OptimizerType::kSgd || c.optimizer.momentum != 0;
  if (!c.memory.offload_dir.empty() && !moments) {
    report.broken(
        {"memory.offload_dir", "optimizer.type", "optimizer.momentum"},
        "memory.offload_dir: {}; optimizer.type: sgd with momentum 0 keeps no moments that "
        "could lie there; remove the key",
        c.memory.offload_dir);
  }
}

void check_run(const Config& c, RuleReport& report) {
  if (c.training.micro_batch_size > c.training.global_batch_size) {
    report.broken(
        {"training.micro_batch_size", "training.global_batch_size"},
        "training.micro_batch_size: {}; must be at most training.global_batch_size {}: the "
        "rest of every micro-batch would only fill up; from 1 to {} works",
        c.training.micro_batch_size, c.training.global_batch_size, c.training.global_batch_size);
  }
  if (c.training.clip_grad_value > 0 && c.training.clip_grad_norm > 0) {
    report.broken(
        {"training.clip_grad_value", "training.clip_grad_norm"},
        "training.clip_grad_value: {}; training.clip_grad_norm is {} also, and one of the two "
        "clips; set training.clip_grad_norm: 0 or remove clip_grad_value",
        real_text(c.training.clip_grad_value), real_text(c.training.clip_grad_norm));
  }
  const bool own_steps = c.schedule.steps != 0;
  const int64_t scheduled = own_steps ? c.schedule.steps : c.training.steps;
  if (c.schedule.warmup_steps > scheduled) {
    const std::string key = own_steps ? "schedule.steps" : "training.steps";
    report.broken({"schedule.warmup_steps", key},
                  "schedule.warmup_steps: {}; must be at most {} {}, or the peak learning rate is "
                  "never reached{}",
                  c.schedule.warmup_steps, key, scheduled,
                  own_steps ? std::string()
                            : fmt::format("; a run that only stops earlier, with the schedule as "
                                          "it is, has training.stop_after: {}",
                                          scheduled));
  }
  if (c.training.stop_after && *c.training.stop_after > c.training.steps) {
    report.broken(
        {"training.stop_after", "training.steps"},
        "training.stop_after: {}; must be at most training.steps {}; leave it out (or none) "
        "to run to the end",
        *c.training.stop_after, c.training.steps);
  }
  for (const auto& [key, value] :
       {std::pair("checkpoint.staging_mib",
                  c.checkpoint.staging_mib == 0 ? "" : std::to_string(c.checkpoint.staging_mib)),
        std::pair("checkpoint.staging_dir", c.checkpoint.staging_dir)})
    if (!c.checkpoint.async && !value.empty())
      report.broken({key, "checkpoint.async"},
                    "{}: {}; it is for saves beside training, and checkpoint.async is false; "
                    "remove one of the two",
                    key, value);
  const bool explicit_resume = c.checkpoint.resume != "auto" && c.checkpoint.resume != "none";
  if (explicit_resume && !c.checkpoint.init_from.empty()) {
    report.broken({"checkpoint.init_from", "checkpoint.resume"},
                  "checkpoint.init_from: {}; the weights come from checkpoint.resume {} already; "
                  "remove one of the two",
                  c.checkpoint.init_from, c.checkpoint.resume);
  }
}

// The rules that keep checkpoints beyond the newest.
void check_retention(const Config& c, RuleReport& report) {
  const CheckpointSection& k = c.checkpoint;
  if (k.keep == 0 && (k.keep_every != 0 || k.keep_best != 0))
    report.broken({"checkpoint.keep", "checkpoint.keep_every", "checkpoint.keep_best"},
                  "checkpoint.keep: 0; it keeps all checkpoints, so keep_every {} and keep_best {} "
                  "have nothing to keep; set keep to 1 or more, or leave the other two out",
                  k.keep_every, k.keep_best);
  if (k.keep_every != 0 && (k.every == 0 || k.keep_every % k.every != 0))
    report.broken({"checkpoint.keep_every", "checkpoint.every"},
                  "checkpoint.keep_every: {}; must be a multiple of checkpoint.every {}, or its "
                  "steps are not saved{}",
                  k.keep_every, k.every,
                  k.every == 0
                      ? "; set checkpoint.every"
                      : fmt::format(", such as {}", (k.keep_every / k.every + 1) * k.every));
  if (k.keep_best != 0 && c.eval.every == 0)
    report.broken({"checkpoint.keep_best", "eval.every"},
                  "checkpoint.keep_best: {}; it goes by the validation loss, and eval.every is 0; "
                  "set eval.every and data.valid, or leave keep_best out",
                  k.keep_best);
}

}  // namespace

void check_model(AnyModel model) {
  Mistakes mistakes;
  const KeyPlaces nowhere;
  PlacedReport report(nowhere, mistakes);
  for (const Field& field : model->fields()) check_field("model." + field.name, field, report);
  mistakes.throw_if_any();  // the rules between keys divide by them
  model->check(/*seq_len=*/0, report);
  mistakes.throw_if_any();
}

void check_config(const Config& config, RuleReport& report) {
  const std::set<std::string> unsound = check_fields(config, report);
  const bool model = !unsound.contains("model"), parallel = !unsound.contains("parallel");
  if (model) config.model->check(config.data.seq_len, report);
  if (model && parallel) check_parallel(config, report);
  check_zero(config.parallel, report);
  check_device_rules(config, report);
  check_optimizer(config.optimizer, config.precision.params, report);
  check_precision(config, report);
  if (parallel) check_memory(config, report);
  check_data(config, model ? std::optional(config.model->input()) : std::nullopt, report);
  check_run(config, report);
  check_retention(config, report);
  if (!unsound.contains("debug")) check_inject(config, report);
  check_allow_change(config, report);
}

void check_config(const Config& config) {
  Mistakes mistakes;
  const KeyPlaces nowhere;
  PlacedReport report(nowhere, mistakes);
  check_config(config, report);
  mistakes.throw_if_any();
}

}  // namespace tessera
