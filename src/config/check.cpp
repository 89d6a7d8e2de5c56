#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/divisors.h"
#include "base/error.h"
#include "config/check_data.h"
#include "config/check_device.h"
#include "config/fields.h"
#include "config/load.h"

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

void check_field(const std::string& path, const Field& field) {
  if (std::visit(Broken{}, field.value)) {
    fail_user("config", "{}: {}; must be {}", path, value_text(field.value),
              rule_text(field.value));
  }
  if (const auto* list = std::get_if<MapListValue>(&field.value)) {
    for (size_t i = 0; i < list->size(); ++i) {
      for (const Field& inner : list->fields(i))
        check_field(fmt::format("{}[{}].{}", path, i, inner.name), inner);
    }
  }
}

void check_fields(Config config) {
  for (const Section& section : describe(config)) {
    for (const Field& field : section.fields) check_field(section.path(field), field);
  }
}

void check_zero(const ParallelSection& p) {
  if (p.zero < 3 && p.reshard_after_forward != kReshardAlways) {
    fail_user("config",
              "parallel.reshard_after_forward: {}; at parallel.zero {} parameters stay in full "
              "anyway; leave it out or set zero: 3",
              p.reshard_after_forward == kReshardNever ? "false"
                                                       : std::to_string(p.reshard_after_forward),
              p.zero);
  }
  if (p.zero < 2 && p.reduce_per_micro_batch == AutoFlag::kTrue) {
    fail_user("config",
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

void check_sequence_parallel(const Config& c) {
  if (c.parallel.tp_overlap == TpOverlap::kRing && !c.parallel.sequence_parallel) {
    fail_user(
        "config",
        "parallel.tp_overlap: ring; what it sends around the ring are the gathers and sums of "
        "sequence parallelism; set parallel.sequence_parallel: true, or tp_overlap: backward");
  }
  if (!c.parallel.sequence_parallel) return;
  const int64_t tp = c.parallel.tp, rows = c.training.micro_batch_size;
  for (const auto& [what, length] : sample_lengths(c)) {
    if (rows * length % tp == 0) continue;
    const int64_t step = tp / std::gcd(tp, rows);  // of which the length may be a multiple
    const std::string other =
        c.data.kind == DataKind::kImages
            ? ""
            : fmt::format(", or a {} of {}", what, (length / step + 1) * step);
    fail_user("config",
              "parallel.sequence_parallel: true; parallel.tp {} must divide the tokens of a "
              "micro-batch, training.micro_batch_size {} x {} {} = {}; a multiple of {} as "
              "micro_batch_size would do{}",
              tp, rows, what, length, rows * length, tp / std::gcd(tp, length), other);
  }
}

void check_parallel(const Config& c) {
  const std::string why = c.model->why_not_tp(c.parallel.tp);
  if (!why.empty())
    fail_user("config", "parallel.tp: {}; {}; for this model these work: {}", c.parallel.tp, why,
              good_tps(*c.model, 4096));
  check_sequence_parallel(c);
  check_zero(c.parallel);
}

void check_precision(const PrecisionSection& p) {
  const bool half = p.params == ParamsDtype::kBf16 || p.params == ParamsDtype::kFp16;
  if (p.reduce != ReduceDtype::kFp32 &&
      (p.params == ParamsDtype::kFp64 || p.params == ParamsDtype::kFp16)) {
    fail_user("config",
              "precision.reduce: bf16 travels, but precision.params is {}; leave reduce at fp32",
              p.params == ParamsDtype::kFp64
                  ? "fp64, which is fp64 throughout (fp32 then means fp64)"
                  : "fp16, whose gradients bf16 would round");
  }
  if (p.params == ParamsDtype::kFp64 &&
      (p.output != OutputDtype::kParams || p.buffers != BufferDtype::kFp32)) {
    fail_user("config",
              "precision.{}: differs from params, but precision.params: fp64 is fp64 throughout; "
              "leave it out",
              p.output != OutputDtype::kParams ? "output" : "buffers");
  }
  if (p.params == ParamsDtype::kFp16 && p.output == OutputDtype::kBf16) {
    fail_user(
        "config",
        "precision.output: bf16; precision.params is fp16, and two kinds of halves would round "
        "twice; params or fp32 work");
  }
  if (!half && !p.keep_fp32.empty()) {
    fail_user("config",
              "precision.keep_fp32: [{}]; precision.params is {} already; it needs params bf16 or "
              "fp16, leave it out",
              fmt::join(p.keep_fp32, ", "), p.params == ParamsDtype::kFp32 ? "fp32" : "fp64");
  }
}

// Keys that the chosen optimizer would not look at must be as they are without being given.
void check_optimizer(const OptimizerConfig& o, ParamsDtype params) {
  const OptimizerConfig defaults;
  if (o.moments == MomentsDtype::kBf16 && params == ParamsDtype::kFp64) {
    fail_user("config",
              "optimizer.moments: bf16; precision.params: fp64 is fp64 throughout, moments too; "
              "remove the key");
  }
  if (o.type == OptimizerType::kSgd) {
    if (o.beta1 != defaults.beta1 || o.beta2 != defaults.beta2 || o.eps != defaults.eps) {
      fail_user("config",
                "optimizer.type: sgd; it has neither betas nor eps; remove them, or set "
                "optimizer.type: adamw or adam");
    }
    if (o.nesterov && o.momentum == 0) {
      fail_user("config",
                "optimizer.nesterov: true; it needs optimizer.momentum above 0, which is {}",
                o.momentum);
    }
    if (o.momentum == 0 && o.moments != defaults.moments) {
      fail_user("config",
                "optimizer.moments: bf16; sgd with optimizer.momentum 0 keeps no moments; remove "
                "the key or set a momentum");
    }
  } else if (o.momentum != 0 || o.nesterov) {
    fail_user("config",
              "optimizer.momentum: {}, nesterov: {}; only optimizer.type: sgd has them; adam's and "
              "adamw's are optimizer.betas",
              o.momentum, o.nesterov);
  }
  for (size_t i = 0; i < o.groups.size(); ++i) {
    const ParameterGroup& group = o.groups[i];
    if (group.params.empty()) {
      fail_user("config", "optimizer.groups[{}].params: []; must be at least one name pattern", i);
    }
    if (group.frozen && (group.lr_scale != 1.0 || group.weight_decay)) {
      fail_user("config",
                "optimizer.groups[{}].frozen: true; frozen parameters have no update that lr_scale "
                "or weight_decay could change; remove those keys",
                i);
    }
  }
}

void check_loss_scale(const PrecisionSection& p) {
  const LossScaleConfig& l = p.loss_scale;
  const LossScaleConfig defaults;
  const bool fp16 = is_fp16(p);
  if (!fp16 && l.mode != LossScaleMode::kAuto) {
    fail_user("config",
              "precision.loss_scale: {}; only precision.params: fp16 has a range so small that the "
              "loss must be scaled; remove the key",
              l.mode == LossScaleMode::kDynamic ? "dynamic" : real_text(l.value));
  }
  if (fp16 && l.mode != LossScaleMode::kStatic) return;
  if (l.initial != defaults.initial || l.growth_interval != defaults.growth_interval ||
      l.hysteresis != defaults.hysteresis) {
    fail_user(
        "config",
        "precision.initial_loss_scale, loss_scale_growth_interval, loss_scale_hysteresis: {}, "
        "{}, {}; they belong to a dynamic loss scale, which precision.params: fp16 with "
        "loss_scale: dynamic has; remove them",
        real_text(l.initial), l.growth_interval, l.hysteresis);
  }
}

void check_buffers(const Config& c) {
  if (c.precision.buffers == BufferDtype::kFp32) return;
  AnyModel model = c.model;
  for (const Field& field : model->fields())
    if (field.name == "rope_theta") return;
  fail_user("config",
            "precision.buffers: bf16; they are tables of rotary positions, and model.type {} has "
            "none; remove it",
            model->type());
}

void check_memory(const Config& c) {
  if (c.parallel.sequence_parallel && c.memory.loss_chunk % c.parallel.tp != 0) {
    fail_user("config",
              "memory.loss_chunk: {}; with parallel.sequence_parallel a chunk has as many tokens "
              "of each of the {} ranks of tp; multiples of {} work, such as {}",
              c.memory.loss_chunk, c.parallel.tp, c.parallel.tp,
              (c.memory.loss_chunk / c.parallel.tp + 1) * c.parallel.tp);
  }
  if (c.memory.recompute != Recompute::kFull && c.memory.recompute_every != 1) {
    fail_user("config",
              "memory.recompute_every: {}; it needs memory.recompute: full; leave it out or set "
              "that",
              c.memory.recompute_every);
  }
  if (c.memory.offload != Offload::kNone && c.device == "cpu") {
    fail_user("config",
              "memory.offload: {}; with device: cpu all states lie in the host's memory already; "
              "leave it out, or set memory.offload_dir to put the optimizer's moments on a disk",
              c.memory.offload == Offload::kAll ? "all" : "optimizer");
  }
  if (c.memory.offload == Offload::kAll &&
      (c.parallel.zero < 2 || c.parallel.reduce_per_micro_batch == AutoFlag::kFalse)) {
    fail_user("config",
              "memory.offload: all; gradients that are kept in full between reductions (parallel."
              "zero {}, reduce_per_micro_batch {}) stay on the GPU; set zero: 2 or 3 with "
              "reduce_per_micro_batch: auto, or memory.offload: optimizer",
              c.parallel.zero,
              c.parallel.reduce_per_micro_batch == AutoFlag::kFalse ? "false" : "auto");
  }
  const bool moments = c.optimizer.type != OptimizerType::kSgd || c.optimizer.momentum != 0;
  if (!c.memory.offload_dir.empty() && !moments) {
    fail_user("config",
              "memory.offload_dir: {}; optimizer.type: sgd with momentum 0 keeps no moments that "
              "could lie there; remove the key",
              c.memory.offload_dir);
  }
}

void check_run(const Config& c) {
  if (c.training.micro_batch_size > c.training.global_batch_size) {
    fail_user("config",
              "training.micro_batch_size: {}; must be at most training.global_batch_size {}: the "
              "rest of every micro-batch would only fill up; from 1 to {} works",
              c.training.micro_batch_size, c.training.global_batch_size,
              c.training.global_batch_size);
  }
  if (c.training.clip_grad_value > 0 && c.training.clip_grad_norm > 0) {
    fail_user(
        "config",
        "training.clip_grad_value: {}; training.clip_grad_norm is {} also, and one of the two "
        "clips; set training.clip_grad_norm: 0 or remove clip_grad_value",
        real_text(c.training.clip_grad_value), real_text(c.training.clip_grad_norm));
  }
  if (c.schedule.warmup_steps > c.training.steps) {
    fail_user("config",
              "schedule.warmup_steps: {}; must be at most training.steps {}, or the peak learning "
              "rate is never reached",
              c.schedule.warmup_steps, c.training.steps);
  }
  if (c.training.stop_after && *c.training.stop_after > c.training.steps) {
    fail_user("config",
              "training.stop_after: {}; must be at most training.steps {}; leave it out (or none) "
              "to run to the end",
              *c.training.stop_after, c.training.steps);
  }
  const bool explicit_resume = c.checkpoint.resume != "auto" && c.checkpoint.resume != "none";
  if (explicit_resume && !c.checkpoint.init_from.empty()) {
    fail_user("config",
              "checkpoint.init_from: {}; the weights come from checkpoint.resume {} already; "
              "remove one of the two",
              c.checkpoint.init_from, c.checkpoint.resume);
  }
}

}  // namespace

void check_model(AnyModel model) {
  for (const Field& field : model->fields()) check_field("model." + field.name, field);
  model->check(/*seq_len=*/0);
}

void check_config(const Config& config) {
  check_fields(config);
  config.model->check(config.data.seq_len);
  check_parallel(config);
  check_device_rules(config);
  check_optimizer(config.optimizer, config.precision.params);
  check_precision(config.precision);
  check_buffers(config);
  check_memory(config);
  check_loss_scale(config.precision);
  check_data(config);
  check_run(config);
}

MeshShape resolve_mesh(const Config& config, int world) {
  const ParallelSection& p = config.parallel;
  const int64_t fixed = int64_t{p.tp} * p.dp_replicate;
  if (world < 1) fail("config", "{} ranks; must be at least 1", world);
  if (p.dp_shard == 0) {
    if (world % fixed != 0) {
      const auto fits = [&](int64_t tp) {
        return config.model->why_not_tp(tp).empty() && world % (tp * p.dp_replicate) == 0;
      };
      fail_user("config",
                "parallel: dp_replicate {} x tp {} = {} must divide the number of ranks, which is "
                "{}; values of tp that would work with {} ranks: {}; or start a multiple of {} "
                "ranks",
                p.dp_replicate, p.tp, fixed, world, world, divisors(world, fits), fixed);
    }
    return {p.dp_replicate, static_cast<int>(world / fixed), p.tp};
  }
  if (fixed * p.dp_shard != world) {
    const std::string fix = world % fixed == 0
                                ? fmt::format("dp_shard: {} (or auto) would fit", world / fixed)
                                : fmt::format("no dp_shard fits tp {} to {} ranks", p.tp, world);
    fail_user("config",
              "parallel: dp_replicate {} x dp_shard {} x tp {} = {} ranks, but {} are started; {}; "
              "or start {} ranks",
              p.dp_replicate, p.dp_shard, p.tp, fixed * p.dp_shard, world, fix, fixed * p.dp_shard);
  }
  return {p.dp_replicate, p.dp_shard, p.tp};
}

}  // namespace tessera
