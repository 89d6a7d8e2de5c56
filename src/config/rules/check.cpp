#include "config/rules/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/divisors.h"
#include "base/error.h"
#include "config/keys/fields.h"
#include "config/keys/key_places.h"
#include "config/rules/check_data.h"
#include "config/rules/check_device.h"
#include "config/rules/resume.h"

namespace tessera {
namespace {

// The numbers of tp, up to `limit`, that this model can be split over.
std::string good_tps(const Model& model, int64_t limit) {
  return list_of(limit, [&](int64_t tp) { return model.why_not_tp(tp).empty(); });
}

// Configurations made in code have not been through the reader.
struct Broken {
  bool operator()(const IntegerValue& v) const {
    const std::optional<int64_t> value = v.get();
    return value ? *value < v.min || *value > v.max : v.word.empty();
  }
  bool operator()(const RealValue& v) const { return !in_range(v.range, *v.value); }
  bool operator()(const RealPairValue& v) const {
    return !in_range(v.range, *v.first) || !in_range(v.range, *v.second);
  }
  bool operator()(const RealListValue& v) const {
    return !std::all_of(v.values->begin(), v.values->end(),
                        [&](double value) { return in_range(v.range, value); });
  }
  bool operator()(const FlagValue&) const { return false; }
  bool operator()(const FlagOrCountValue& v) const {
    return *v.value < 1 && *v.value != v.when_true && *v.value != v.when_false;
  }
  bool operator()(const ChoiceValue& v) const { return v.get() < 0; }
  bool operator()(const TextValue& v) const { return v.word.empty() && v.value->empty(); }
  bool operator()(const TextListValue&) const { return false; }
  bool operator()(const RealOrWordValue& v) const {
    const auto value = v.get();
    const double* number = std::get_if<double>(&value);
    return number && !in_range(v.range, *number);
  }
  bool operator()(const MapListValue&) const { return false; }  // its fields are checked
};

// Whether the field has a value that it may have.
bool check_field(const std::string& path, const Field& field, RuleReport& report) {
  bool sound = !std::visit(Broken{}, field.value);
  if (!sound) {
    std::vector<std::string> keys = {path};
    if (!field.follows.empty()) keys.push_back(path.substr(0, path.rfind('.') + 1) + field.follows);
    report.broken(keys, "{}: {}; must be {}", path, value_text(field.value),
                  rule_text(field.value));
  }
  if (const auto* list = std::get_if<MapListValue>(&field.value)) {
    for (size_t i = 0; i < list->size(); ++i) {
      for (const Field& inner : list->fields(i))
        sound &= check_field(fmt::format("{}[{}].{}", path, i, inner.name), inner, report);
    }
  }
  return sound;
}

// The sections with a value that they cannot have: rules between keys may not compute with it.
std::set<std::string> check_fields(Config config, RuleReport& report) {
  std::set<std::string> unsound;
  for (const Section& section : describe(config)) {
    for (const Field& field : section.fields)
      if (!check_field(section.path(field), field, report)) unsound.insert(section.name);
  }
  return unsound;
}

void check_zero(const ParallelSection& p, RuleReport& report) {
  if (p.zero < 3 && p.reshard_after_forward != kReshardAlways) {
    report.broken({"parallel.reshard_after_forward", "parallel.zero"},
                  "parallel.reshard_after_forward: {}; at parallel.zero {} parameters stay in full "
                  "anyway; leave it out or set zero: 3",
                  p.reshard_after_forward == kReshardNever
                      ? "false"
                      : std::to_string(p.reshard_after_forward),
                  p.zero);
  }
  if (p.zero < 2 && p.reduce_per_micro_batch == AutoFlag::kTrue) {
    report.broken(
        {"parallel.reduce_per_micro_batch", "parallel.zero"},
        "parallel.reduce_per_micro_batch: true; parallel.zero {} keeps gradients in full and "
        "reduces them once a step; leave it out (auto) or set zero: 2, which reduces each "
        "micro-batch",
        p.zero);
  }
}

struct SampleLength {
  std::string what;  // the key that says it
  int64_t tokens;
};

// How many tokens of a sample the layers of the model see.
std::vector<SampleLength> sample_lengths(const Config& c) {
  switch (c.data.kind) {
    case DataKind::kTokens:
      return {{"data.seq_len", c.data.seq_len}};
    case DataKind::kPairs:
      return {{"data.source_len", c.data.source_len}, {"data.target_len", c.data.target_len}};
    case DataKind::kImages:
      return {{"tokens of an image", c.model->input().image_tokens}};
  }
  fail("config", "data.kind {}", static_cast<int>(c.data.kind));
}

void check_sequence_parallel(const Config& c, RuleReport& report) {
  if (c.parallel.tp_overlap == TpOverlap::kRing && !c.parallel.sequence_parallel) {
    report.broken(
        {"parallel.tp_overlap", "parallel.sequence_parallel"},
        "parallel.tp_overlap: ring; what it sends around the ring are the gathers and sums of "
        "sequence parallelism; set parallel.sequence_parallel: true, or tp_overlap: backward");
  }
  if (!c.parallel.sequence_parallel) return;
  const int64_t tp = c.parallel.tp, rows = c.training.micro_batch_size;
  for (const auto& [what, length] : sample_lengths(c)) {
    const std::string key = c.data.kind == DataKind::kImages ? "model" : what;
    if (rows * length % tp == 0) continue;
    const int64_t step = tp / std::gcd(tp, rows);  // of which the length may be a multiple
    const std::string other =
        c.data.kind == DataKind::kImages
            ? ""
            : fmt::format(", or a {} of {}", what, (length / step + 1) * step);
    report.broken({"parallel.sequence_parallel", "parallel.tp", "training.micro_batch_size", key},
                  "parallel.sequence_parallel: true; parallel.tp {} must divide the tokens of a "
                  "micro-batch, training.micro_batch_size {} x {} {} = {}; a multiple of {} as "
                  "micro_batch_size would do{}",
                  tp, rows, what, length, rows * length, tp / std::gcd(tp, length), other);
  }
}

void check_parallel(const Config& c, RuleReport& report) {
  const std::string why = c.model->why_not_tp(c.parallel.tp);
  if (!why.empty())
    report.broken({"parallel.tp", "model"}, "parallel.tp: {}; {}; for this model these work: {}",
                  c.parallel.tp, why, good_tps(*c.model, 4096));
  check_sequence_parallel(c, report);
}

void check_precision(const PrecisionSection& p, RuleReport& report) {
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

// Keys that the chosen optimizer would not look at must be as they are without being given.
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
  const bool explicit_resume = c.checkpoint.resume != "auto" && c.checkpoint.resume != "none";
  if (explicit_resume && !c.checkpoint.init_from.empty()) {
    report.broken({"checkpoint.init_from", "checkpoint.resume"},
                  "checkpoint.init_from: {}; the weights come from checkpoint.resume {} already; "
                  "remove one of the two",
                  c.checkpoint.init_from, c.checkpoint.resume);
  }
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
  check_precision(config.precision, report);
  check_buffers(config, report);
  if (parallel) check_memory(config, report);
  check_loss_scale(config.precision, report);
  check_data(config, model ? std::optional(config.model->input()) : std::nullopt, report);
  check_run(config, report);
  check_allow_change(config, report);
}

void check_config(const Config& config) {
  Mistakes mistakes;
  const KeyPlaces nowhere;
  PlacedReport report(nowhere, mistakes);
  check_config(config, report);
  mistakes.throw_if_any();
}

std::optional<MeshShape> resolve_mesh(const Config& config, int world, RuleReport& report) {
  const ParallelSection& p = config.parallel;
  const std::vector<std::string> keys = {"parallel.dp_shard", "parallel.tp",
                                         "parallel.dp_replicate"};
  const int64_t fixed = int64_t{p.tp} * p.dp_replicate;
  if (world < 1) fail("config", "{} ranks; must be at least 1", world);
  if (p.dp_shard == 0) {
    if (world % fixed == 0) return MeshShape{p.dp_replicate, static_cast<int>(world / fixed), p.tp};
    const auto fits = [&](int64_t tp) {
      return config.model->why_not_tp(tp).empty() && world % (tp * p.dp_replicate) == 0;
    };
    report.broken(
        keys,
        "parallel: dp_replicate {} x tp {} = {} must divide the number of ranks, which is "
        "{}; values of tp that would work with {} ranks: {}; or start a multiple of {} "
        "ranks",
        p.dp_replicate, p.tp, fixed, world, world, divisors(world, fits), fixed);
    return std::nullopt;
  }
  if (fixed * p.dp_shard == world) return MeshShape{p.dp_replicate, p.dp_shard, p.tp};
  const std::string fix = world % fixed == 0
                              ? fmt::format("dp_shard: {} (or auto) would fit", world / fixed)
                              : fmt::format("no dp_shard fits tp {} to {} ranks", p.tp, world);
  report.broken(
      keys,
      "parallel: dp_replicate {} x dp_shard {} x tp {} = {} ranks, but {} are started; {}; "
      "or start {} ranks",
      p.dp_replicate, p.dp_shard, p.tp, fixed * p.dp_shard, world, fix, fixed * p.dp_shard);
  return std::nullopt;
}

MeshShape resolve_mesh(const Config& config, int world) {
  Mistakes mistakes;
  const KeyPlaces nowhere;
  PlacedReport report(nowhere, mistakes);
  const auto mesh = resolve_mesh(config, world, report);
  mistakes.throw_if_any();
  return mesh.value();
}

}  // namespace tessera
