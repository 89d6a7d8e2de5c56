#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "config/check_data.h"
#include "config/fields.h"
#include "config/load.h"
#include "parallel/device/cuda_support.h"

namespace tessera {
namespace {

// The divisors of n that `fits` accepts, as a list for messages; long lists are cut.
template <typename Fits>
std::string divisors(int64_t n, Fits fits) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n && d <= 65536; ++d) {
    if (n % d == 0 && fits(d)) found.push_back(d);
  }
  if (found.empty()) return "none";
  const bool cut = found.size() > 24;
  if (cut) found.resize(24);
  return fmt::format("{}{}", fmt::join(found, ", "), cut ? ", ..." : "");
}

std::string divisors(int64_t n) {
  return divisors(n, [](int64_t) { return true; });
}

// Whether tensor parallelism can split every layer: each rank has as many query heads and columns
// of the MLP as the others, key and value heads are split or held by several ranks each, and the
// vocabulary's rows differ by one at most.
bool tp_fits(const LlamaConfig& m, int64_t tp) {
  return m.num_attention_heads % tp == 0 && m.intermediate_size % tp == 0 &&
         (m.num_key_value_heads % tp == 0 || tp % m.num_key_value_heads == 0) && m.vocab_size >= tp;
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

void check_model(const LlamaConfig& m) {
  if (m.hidden_size % m.num_attention_heads != 0) {
    fail_user("config",
              "model.num_attention_heads: {}; must divide model.hidden_size {} into heads of even "
              "width; these would: {}",
              m.num_attention_heads, m.hidden_size,
              divisors(m.hidden_size, [&](int64_t h) { return m.hidden_size / h % 2 == 0; }));
  }
  if (m.head_dim() % 2 != 0) {
    fail_user("config",
              "model.num_attention_heads: {}; heads of width {} / {} = {} cannot be rotated in "
              "pairs, the width must be even; these would do: {}",
              m.num_attention_heads, m.hidden_size, m.num_attention_heads, m.head_dim(),
              divisors(m.hidden_size, [&](int64_t h) { return m.hidden_size / h % 2 == 0; }));
  }
  if (m.num_attention_heads % m.num_key_value_heads != 0) {
    fail_user("config",
              "model.num_key_value_heads: {}; must divide model.num_attention_heads {}; these "
              "would: {}",
              m.num_key_value_heads, m.num_attention_heads, divisors(m.num_attention_heads));
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

void check_sequence_parallel(const Config& c) {
  if (c.parallel.tp_overlap == TpOverlapMode::kRing && !c.parallel.sequence_parallel) {
    fail_user(
        "config",
        "parallel.tp_overlap: ring; what it sends around the ring are the gathers and sums of "
        "sequence parallelism; set parallel.sequence_parallel: true, or tp_overlap: backward");
  }
  const int64_t tp = c.parallel.tp, rows = c.training.micro_batch_size, length = c.data.seq_len;
  if (!c.parallel.sequence_parallel || rows * length % tp == 0) return;
  const int64_t step = tp / std::gcd(tp, rows);  // of which seq_len may be a multiple
  fail_user("config",
            "parallel.sequence_parallel: true; parallel.tp {} must divide the tokens of a "
            "micro-batch, training.micro_batch_size {} x data.seq_len {} = {}; a multiple of {} as "
            "micro_batch_size would do, or a seq_len of {}",
            tp, rows, length, rows * length, tp / std::gcd(tp, length), (length / step + 1) * step);
}

void check_parallel(const Config& c) {
  const LlamaConfig& m = c.model;
  const int64_t tp = c.parallel.tp;
  const std::string good =
      divisors(m.num_attention_heads, [&](int64_t t) { return tp_fits(m, t); });
  const auto refuse = [&](const char* rule, const char* key, int64_t value) {
    fail_user("config", "parallel.tp: {}; must {} model.{} {}; for this model these work: {}", tp,
              rule, key, value, good);
  };
  if (m.num_attention_heads % tp != 0)
    refuse("divide", "num_attention_heads", m.num_attention_heads);
  if (m.num_key_value_heads % tp != 0 && tp % m.num_key_value_heads != 0)
    refuse("divide, or be a multiple of,", "num_key_value_heads", m.num_key_value_heads);
  if (m.intermediate_size % tp != 0) refuse("divide", "intermediate_size", m.intermediate_size);
  if (m.vocab_size < tp) refuse("be at most", "vocab_size", m.vocab_size);
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

// What only the CPU can do, then whether this program and this machine can do device: cuda.
void check_cuda(const Config& c) {
  const auto refuse = [](const char* key, const std::string& value, const char* rule) {
    fail_user("config", "{}: {}; {}, and device is cuda; set device: cpu or leave it out", key,
              value, rule);
  };
  const std::pair<const char*, double> dropouts[] = {
      {"model.attention_dropout", c.model.attention_dropout},
      {"model.hidden_dropout", c.model.hidden_dropout},
      {"model.embedding_dropout", c.model.embedding_dropout}};
  for (const auto& [key, rate] : dropouts)
    if (rate > 0) refuse(key, real_text(rate), "dropout masks are made on the CPU only");
  if (!c.memory.offload_dir.empty())
    refuse("memory.offload_dir", c.memory.offload_dir,
           "moments on a disk are updated by the CPU (memory.offload puts a GPU's into the host's "
           "memory)");
  if (c.debug.check_collectives)
    refuse("debug.check_collectives", "true", "calls are compared on the CPU alone");
  if (!built_with_cuda())
    fail_user("config",
              "device: cuda; this program was built without CUDA and computes on cpu; set device: "
              "cpu, or use a program built with `cmake --preset cuda`");
  if (visible_gpus() == 0)
    fail_user("config",
              "device: cuda; this process sees no GPU: nvidia-smi must list one, and "
              "CUDA_VISIBLE_DEVICES must not hide it; or set device: cpu");
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
  if (c.device == "cuda") check_cuda(c);
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

void check_config(const Config& config) {
  check_fields(config);
  check_model(config.model);
  check_parallel(config);
  check_optimizer(config.optimizer, config.precision.params);
  check_precision(config.precision);
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
        return tp_fits(config.model, tp) && world % (tp * p.dp_replicate) == 0;
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
