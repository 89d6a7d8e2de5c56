// Whole files: the promised names, defaults, overrides, and the way back to YAML.

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "config/document.h"
#include "config/load.h"
#include "config/rules/check.h"
#include "config/save.h"
#include "config_text.h"
#include "support/folders.h"

namespace tessera {
namespace {

using testing::expect_user_error;
using testing::kContract;
using testing::kMinimal;
using testing::load_text;
using testing::minimal;
using testing::sizes;
using testing::TempDir;

TEST(Load, TheContract) {
  const Config c = load_text(kContract);
  check_config(c);
  EXPECT_EQ(c.run.dir, "runs/quickstart");
  EXPECT_EQ(c.run.seed, 42u);
  EXPECT_EQ(c.device, "cpu");
  LlamaConfig model{.hidden_size = 256,
                    .intermediate_size = 688,
                    .num_hidden_layers = 4,
                    .num_attention_heads = 8,
                    .num_key_value_heads = 4,
                    .vocab_size = 256,
                    .rope_theta = 10000.0,
                    .rms_norm_eps = 1e-5,
                    .tie_word_embeddings = false,
                    .initializer_range = 0.02};
  EXPECT_EQ(c.model->type(), "llama");
  EXPECT_EQ(sizes(c), model);
  EXPECT_EQ(c.parallel.tp, 2);
  EXPECT_EQ(c.parallel.dp_shard, 0);
  EXPECT_EQ(c.parallel.dp_replicate, 1);
  EXPECT_EQ(c.parallel.zero, 3);
  EXPECT_EQ(c.precision.params, ParamsDtype::kFp32);
  EXPECT_EQ(c.precision.reduce, ReduceDtype::kFp32);
  EXPECT_EQ(c.memory.recompute, Recompute::kNone);
  EXPECT_EQ(c.data.train, std::vector<std::string>{"data/bible"});
  EXPECT_EQ(c.data.valid, std::vector<std::string>{"data/bible-valid"});
  EXPECT_EQ(c.data.seq_len, 256);
  EXPECT_EQ(c.training.steps, 200);
  EXPECT_EQ(c.training.global_batch_size, 8);
  EXPECT_EQ(c.training.micro_batch_size, 2);
  EXPECT_EQ(c.training.clip_grad_norm, 1.0);
  EXPECT_EQ(c.training.log_every, 1);
  EXPECT_EQ(c.training.stop_after, 100);
  EXPECT_TRUE(c.training.log_samples);
  const OptimizerConfig adamw{.type = OptimizerType::kAdamW,
                              .lr = 1e-3,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1};
  EXPECT_EQ(c.optimizer, adamw);
  const ScheduleConfig schedule{
      .type = ScheduleType::kCosine, .warmup_steps = 20, .min_lr_ratio = 0.1};
  EXPECT_EQ(c.schedule, schedule);
  EXPECT_EQ(c.eval.every, 50);
  EXPECT_EQ(c.eval.batches, 8);
  EXPECT_EQ(c.checkpoint.every, 50);
  EXPECT_EQ(c.checkpoint.keep, 3);
  EXPECT_EQ(c.checkpoint.resume, "auto");
  EXPECT_EQ(c.checkpoint.init_from, "");
}

TEST(Load, ParameterGroups) {
  const std::string text = std::string(kMinimal) + R"yaml(optimizer:
  groups:
    - params: ["*norm*", lm_head.weight]
      lr_scale: 0.5
    - {params: ["model.embed_tokens.weight"], frozen: true}
    - params: ["*"]
      weight_decay: 0
)yaml";
  const Config c = load_text(text);
  check_config(c);
  const std::vector<ParameterGroup> expected = {
      {.params = {"*norm*", "lm_head.weight"}, .lr_scale = 0.5},
      {.params = {"model.embed_tokens.weight"}, .frozen = true},
      {.params = {"*"}, .weight_decay = 0.0},
  };
  EXPECT_EQ(c.optimizer.groups, expected);
  // What is saved reads back as the same.
  EXPECT_EQ(load_text(to_yaml(c)).optimizer.groups, expected);
  EXPECT_EQ(to_json(c)["optimizer"]["groups"][0],
            (nlohmann::json{{"params", {"*norm*", "lm_head.weight"}},
                            {"lr_scale", 0.5},
                            {"weight_decay", "default"},
                            {"frozen", false}}));
  const Config set = minimal({"optimizer.groups=[{params: [\"*\"], lr_scale: 2.0}]"});
  EXPECT_EQ(set.optimizer.groups,
            (std::vector<ParameterGroup>{{.params = {"*"}, .lr_scale = 2.0}}));
}

TEST(Load, LossScaleIsAWordOrANumber) {
  EXPECT_EQ(minimal().precision.loss_scale, LossScaleConfig{});
  EXPECT_EQ(minimal({"precision.loss_scale=dynamic"}).precision.loss_scale.mode,
            LossScaleMode::kDynamic);
  const Config fixed = minimal({"precision.loss_scale=1024"});
  EXPECT_EQ(fixed.precision.loss_scale.mode, LossScaleMode::kStatic);
  EXPECT_EQ(fixed.precision.loss_scale.value, 1024.0);
  EXPECT_EQ(to_json(fixed)["precision"]["loss_scale"], 1024.0);
  EXPECT_EQ(load_text(to_yaml(fixed)).precision.loss_scale, fixed.precision.loss_scale);
}

TEST(Load, AnInjectedFault) {
  EXPECT_FALSE(minimal().debug.inject.has_value());
  EXPECT_FALSE(minimal({"debug.inject=none"}).debug.inject.has_value());
  const Config config = minimal({"debug.inject={rank: 2, step: 5, at: save, do: stop}"});
  const Config again = load_text(to_yaml(config));
  for (const Config* c : {&config, &again}) {
    ASSERT_TRUE(c->debug.inject.has_value());
    EXPECT_EQ(c->debug.inject->rank, 2);
    EXPECT_EQ(c->debug.inject->step, 5);
    EXPECT_EQ(c->debug.inject->at, FaultMoment::kSave);
    EXPECT_EQ(c->debug.inject->deed, FaultDeed::kStop);
  }
  EXPECT_NE(to_yaml(config).find("\n  inject: {rank: 2, step: 5, at: save, do: stop}\n"),
            std::string::npos);
  EXPECT_NE(to_yaml(minimal()).find("\n  inject: none\n"), std::string::npos);
}

TEST(Load, DefaultsOfTheStructs) {
  const Config c = minimal();
  check_config(c);
  Config expected;
  expected.run.dir = "runs/x";
  sizes(expected) = {.hidden_size = 64,
                     .intermediate_size = 192,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 4,
                     .num_key_value_heads = 4,  // as many as query heads
                     .vocab_size = 256};
  expected.data.train = {"data/a"};
  expected.data.seq_len = 32;
  expected.training.steps = 100;
  expected.training.global_batch_size = 8;
  EXPECT_EQ(to_json(c), to_json(expected));
}

TEST(Load, EveryKeyGoesToItsOwnMember) {
  // Each override changes exactly one leaf, to the value that was given.
  const nlohmann::json base = to_json(minimal());
  const std::vector<std::pair<std::string, nlohmann::json>> values = {
      {"run.dir", "elsewhere"},
      {"run.seed", 7},
      {"run.threads", 3},
      {"run.doctor", "off"},
      {"device", "cuda"},
      {"model.hidden_size", 128},
      {"model.intermediate_size", 100},
      {"model.num_hidden_layers", 9},
      {"model.num_key_value_heads", 2},
      {"model.vocab_size", 300},
      {"model.head_dim", 18},
      {"model.rope_theta", 500000.0},
      {"model.rope_scaling", "llama3"},
      {"model.rope_factor", 8.0},
      {"model.rope_low_freq_factor", 2.0},
      {"model.rope_high_freq_factor", 5.0},
      {"model.rope_original_max_position_embeddings", 4096},
      {"model.rms_norm_eps", 1e-6},
      {"model.tie_word_embeddings", true},
      {"model.initializer_range", 0.5},
      {"model.attention_dropout", 0.1},
      {"model.hidden_dropout", 0.2},
      {"model.embedding_dropout", 0.3},
      {"parallel.tp", 3},
      {"parallel.dp_shard", 5},
      {"parallel.dp_replicate", 2},
      {"parallel.zero", 1},
      {"parallel.reshard_after_forward", 2},
      {"parallel.prefetch", 2},
      {"parallel.reduce_per_micro_batch", "false"},
      {"parallel.allow_tp_across_nodes", true},
      {"parallel.sequence_parallel", true},
      {"parallel.tp_overlap", "ring"},
      {"precision.params", "bf16"},
      {"precision.reduce", "bf16"},
      {"precision.output", "fp32"},
      {"precision.buffers", "bf16"},
      {"precision.keep_fp32", {"*norm.weight"}},
      {"precision.loss_scale", 128.0},
      {"precision.initial_loss_scale", 4.0},
      {"precision.loss_scale_growth_interval", 100},
      {"precision.loss_scale_hysteresis", 2},
      {"memory.recompute", "full"},
      {"memory.recompute_every", 3},
      {"memory.offload", "optimizer"},
      {"memory.offload_dir", "scratch"},
      {"memory.loss_chunk", 32},
      {"data.train", {"a", "b"}},
      {"data.valid", {"v"}},
      {"data.kind", "images"},
      {"data.seq_len", 77},
      {"data.mean", {0.5, 0.25}},
      {"data.std", {0.5}},
      {"data.flip", true},
      {"data.train_target", {"t"}},
      {"data.valid_target", {"u"}},
      {"data.source_len", 5},
      {"data.target_len", 6},
      {"data.pad_id", 0},
      {"data.bos_id", 1},
      {"data.eos_id", 2},
      {"model.attention_bias", true},
      {"training.steps", 1000},
      {"training.global_batch_size", 12},
      {"training.micro_batch_size", 3},
      {"training.clip_grad_norm", 0.25},
      {"training.clip_grad_value", 0.5},
      {"training.on_nonfinite", "rollback"},
      {"training.max_skips", 3},
      {"training.log_every", 10},
      {"training.stop_after", 50},
      {"training.log_samples", true},
      {"training.log_stage_norms", true},
      {"optimizer.type", "sgd"},
      {"optimizer.lr", 0.125},
      {"optimizer.betas", {0.5, 0.75}},
      {"optimizer.eps", 1e-6},
      {"optimizer.momentum", 0.5},
      {"optimizer.nesterov", true},
      {"optimizer.weight_decay", 0.0},
      {"optimizer.moments", "bf16"},
      {"schedule.type", "linear"},
      {"schedule.warmup_steps", 4},
      {"schedule.min_lr_ratio", 0.0},
      {"schedule.steps", 500},
      {"eval.every", 20},
      {"eval.batches", 3},
      {"checkpoint.every", 30},
      {"checkpoint.keep", 0},
      {"checkpoint.keep_every", 60},
      {"checkpoint.keep_best", 2},
      {"checkpoint.async", false},
      {"checkpoint.staging_mib", 64},
      {"checkpoint.staging_dir", "local"},
      {"checkpoint.on_error", "warn"},
      {"checkpoint.resume", "none"},
      {"checkpoint.init_from", "some/step"},
      {"checkpoint.allow_change", {"optimizer.lr"}},
      {"communication.timeout", 30},
      {"communication.file_timeout", 60},
      {"communication.shared_memory", false},
      {"watchdog.start", 30},
      {"watchdog.first_step", 0},
      {"watchdog.step", 90},
      {"watchdog.validation", 600},
      {"watchdog.save", 700},
      {"debug.poison_released", true},
      {"debug.check_collectives", true},
      {"debug.overlap", false},
      {"debug.compare_replicas_every", 5}};
  for (const auto& [path, value] : values) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const nlohmann::json changed = to_json(minimal({path + "=" + text}));
    nlohmann::json expected = base;
    std::string pointer = "/" + path;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    expected[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_EQ(changed, expected) << path;
  }
  // Every other leaf of the declaration is required or has one value only.
  size_t leaves = 0;
  for (const auto& [name, section] : base.items())
    leaves += section.is_object() ? section.size() : 1;
  // Those are model.type, model.num_attention_heads, optimizer.groups and debug.inject.
  EXPECT_EQ(leaves, values.size() + 4);
}

TEST(Load, AnOverrideWithACommentIsRefusedUnlessItIsQuoted) {
  EXPECT_EQ(minimal({"run.dir=\"a b #c\""}).run.dir, "a b #c");
  EXPECT_EQ(minimal({"run.dir=a#c"}).run.dir, "a#c");
  EXPECT_THROW(minimal({"run.dir=a b #c"}), UserError);
  EXPECT_THROW(minimal({"training.steps=5 #x"}), UserError);
}

TEST(Load, OverridesApplyInOrder) {
  EXPECT_EQ(minimal({"training.steps=5", "training.steps=6"}).training.steps, 6);
  EXPECT_EQ(minimal({"eval.every=5"}).eval.every, 5);             // a section that was not there
  EXPECT_EQ(minimal({"optimizer={lr: 0.5}"}).optimizer.lr, 0.5);  // a whole section
  EXPECT_EQ(minimal({"optimizer={lr: 0.5}", "optimizer.eps=1e-3"}).optimizer.eps, 1e-3);
  // An override gives what the file lacks.
  EXPECT_EQ(load_text("{run: {dir: a}, model: {type: llama, hidden_size: 8, intermediate_size: 8, "
                      "num_hidden_layers: 1, num_attention_heads: 2, vocab_size: 8}, "
                      "training: {steps: 1, global_batch_size: 1}, data: {train: [a]}}",
                      {"data.seq_len=4"})
                .data.seq_len,
            4);
}

TEST(Load, YamlRoundTrip) {
  Config odd = load_text(kContract);
  odd.run.dir = "runs/a #b: \"c\" $HOME ~ \xc3\xa9";  // what has been expanded stays as it is
  odd.run.seed = 9223372036854775807u;
  odd.data.train = {"no", "$x", "null", "1e3", "- a", "a, b", " lead", "*x", "&x", "!x", "yes", ""};
  odd.data.train.pop_back();  // the reader takes no empty text
  odd.data.valid = {};
  odd.optimizer.lr = 0.1 + 0.2;
  odd.optimizer.eps = 5e-324;
  sizes(odd).rope_theta = 1e300;
  odd.training.stop_after = std::nullopt;
  odd.parallel.dp_shard = 2;
  odd.checkpoint.init_from = "none/x";
  for (const Config& config : {load_text(kContract), minimal(), odd}) {
    const std::string yaml = to_yaml(config);
    const Config again = load_text(yaml);
    EXPECT_EQ(to_json(again), to_json(config)) << yaml;
    EXPECT_EQ(to_yaml(again), yaml);
    // As metrics and manifests store it.
    EXPECT_EQ(nlohmann::json::parse(to_json(config).dump()), to_json(config));
  }
  EXPECT_NE(to_yaml(minimal()).find("\n  lr: 0.001\n"), std::string::npos);
  EXPECT_NE(to_yaml(minimal()).find("\n  eps: 1.0e-08\n"), std::string::npos);
  EXPECT_NE(to_yaml(minimal()).find("\n  stop_after: none\n"), std::string::npos);
  EXPECT_NE(to_yaml(minimal()).find("\n  dp_shard: auto\n"), std::string::npos);
  EXPECT_NE(to_yaml(minimal()).find("\n  type: llama\n"), std::string::npos);
}

TEST(Load, FilesThatCannotBeRead) {
  const TempDir dir;
  expect_user_error([&] { load_config(dir.path() / "none.yaml", {}); },
                    {"[config] ", "none.yaml: cannot be opened: No such file"}, "missing");
  expect_user_error([&] { load_config(dir.path(), {}); }, {"is a folder"}, "folder");
  expect_user_error([&] { load_config(dir.write("e.yaml", ""), {"training.steps=5"}); },
                    {"e.yaml:1:1: empty configuration"}, "empty with overrides");
}

TEST(Load, CommittedConfigurations) {
  for (const char* name : {"quickstart.yaml", "tiny.yaml"}) {
    SCOPED_TRACE(name);
    check_config(load_config(std::filesystem::path(TESSERA_SOURCE_DIR) / "configs" / name, {}));
  }
}

TEST(Load, DocumentationIsUpToDate) {
  std::ifstream file(std::filesystem::path(TESSERA_SOURCE_DIR) / "docs/configuration.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string begin = "<!-- keys: begin -->\n", end = "<!-- keys: end -->";
  const std::string all = text.str();
  const size_t from = all.find(begin), to = all.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(all.substr(from + begin.size(), to - from - begin.size()), keys_markdown())
      << "run docs/update_configuration.sh";
}

}  // namespace
}  // namespace tessera
