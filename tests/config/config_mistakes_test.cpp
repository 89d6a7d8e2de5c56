// All that is wrong is said at once, each with its place.

#include <gtest/gtest.h>

#include "config/load.h"
#include "config/rules/check.h"
#include "config_text.h"

namespace tessera {
namespace {

using testing::kMinimal;
using testing::TempDir;

// As train and `config check` read: what is wrong, without the name of the folder.
std::vector<std::string> mistakes_of(const std::string& text,
                                     const std::vector<std::string>& overrides = {},
                                     int ranks = 0) {
  const TempDir dir;
  const std::filesystem::path file = dir.write("c.yaml", text);
  Mistakes mistakes;
  try {
    const LoadedConfig loaded = read_config(file, overrides, mistakes);
    PlacedReport report(loaded.places, mistakes);
    check_config(loaded.config, report);
    if (ranks > 0) resolve_mesh(loaded.config, ranks, report);
    mistakes.throw_if_any();
  } catch (const UserError& error) {
    std::vector<std::string> lines;
    std::istringstream stream(error.what());
    for (std::string line; std::getline(stream, line);) {
      const std::string folder = dir.path().string() + "/";
      for (size_t at; (at = line.find(folder)) != std::string::npos;) line.erase(at, folder.size());
      lines.push_back(line);
    }
    return lines;
  }
  return {};
}

void expect_begins(const std::vector<std::string>& lines,
                   const std::vector<std::string>& expected) {
  ASSERT_EQ(lines.size(), expected.size()) << ::testing::PrintToString(lines);
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_TRUE(lines[i].starts_with(expected[i])) << lines[i] << "\nnot " << expected[i];
}

TEST(Mistakes, AllOfTheReaderAndAllRulesBetweenKeys) {
  expect_begins(
      mistakes_of(R"yaml(run:
  dir: runs/x
  sed: 5
  seed: -1
model:
  type: llama
  hidden_size: 64
  intermediate_size: 192
  num_hidden_layers: 2
  num_attention_heads: 4
  num_key_value_heads: 3
  vocab_size: 256
parallel:
  tp: 3
  zero: 2
  reshard_after_forward: false
data:
  train: [data/a]
training:
  steps: 100
  global_batch_size: 8
  micro_batch_size: 9
optimizer:
  lr: 1e-3
  lr: 2e-3
  momentum: 0.9
optimiser: {}
eval: {every: 5, batches: alle}
)yaml",
                  {"schedule.warmup_steps=101", "training.log_samples=yes"}),
      {
          "[config] 14 mistakes:",
          "  c.yaml:3:3: run.sed: unknown key; did you mean run.seed?",
          "  c.yaml:4:9: run.seed: -1; must be an integer from 0",
          "  c.yaml:11:24: model.num_key_value_heads: 3; must divide",
          "  c.yaml:14:7: parallel.tp: 3; must divide",
          "  c.yaml:16:26: parallel.reshard_after_forward: false; at parallel.zero 2",
          "  c.yaml:17:1: data.seq_len missing; it has no default",
          "  c.yaml:22:21: training.micro_batch_size: 9; must be at most",
          "  c.yaml:25:3: optimizer.lr: written twice, first at c.yaml:24:3",
          "  c.yaml:26:13: optimizer.momentum: 0.9",
          "  c.yaml:27:1: optimiser: unknown key; did you mean optimizer?",
          "  c.yaml:28:15: eval.every: 5; validation needs data.valid",
          "  c.yaml:28:27: eval.batches: alle; must be all or",
          "  --set training.log_samples: training.log_samples: yes; must be true or false",
          "  --set schedule.warmup_steps: schedule.warmup_steps: 101; must be at most",
      });
}

TEST(Mistakes, OneIsOneLine) {
  expect_begins(mistakes_of(kMinimal, {"training.micro_batch_size=9"}),
                {"[config] --set training.micro_batch_size: training.micro_batch_size: 9; must"});
}

// The override came last: it is what made the two disagree.
TEST(Mistakes, AnOverrideIsAtFaultWhereBothWereGiven) {
  expect_begins(
      mistakes_of(std::string(kMinimal) + "schedule: {warmup_steps: 50}\n", {"training.steps=1"}),
      {"[config] --set training.steps: schedule.warmup_steps: 50; must be at most "
       "training.steps 1, or the peak learning rate is never reached; a run that only "
       "stops earlier, with the schedule as it is, has training.stop_after: 1"});
}

TEST(Mistakes, ARuleOfADefaultStandsAtTheOtherKey) {
  expect_begins(mistakes_of(std::string(kMinimal) + "parallel:\n  zero: 1\n"
                                                    "  reduce_per_micro_batch: true\n"
                                                    "  dp_replicate: 3\n",
                            {}, 4),
                {"[config] 2 mistakes:", "  c.yaml:18:27: parallel.reduce_per_micro_batch: true",
                 "  c.yaml:19:17: parallel: dp_replicate 3 x tp 1 = 3 must divide"});
}

// What follows from a value that could not be read is not told besides.
TEST(Mistakes, NothingFollowsFromAMistake) {
  std::string text = kMinimal;
  text.replace(text.find("type: llama"), 11, "type: lama1");
  expect_begins(mistakes_of(text, {"parallel.tp=3"}),
                {"[config] c.yaml:4:9: model.type: lama1; must be"});
  expect_begins(mistakes_of(kMinimal, {"model.num_attention_heads=four", "parallel.tp=3"}),
                {"[config] --set model.num_attention_heads: model.num_attention_heads: four"});
  expect_begins(mistakes_of(kMinimal, {"training.steps=0", "schedule.warmup_steps=5"}),
                {"[config] --set training.steps: training.steps: 0; must be"});
  expect_begins(
      mistakes_of(kMinimal, {"data.kind=text"}),
      {"[config] --set data.kind: data.kind: text; must be tokens or images or pairs; did "
       "you mean tokens?"});
  expect_begins(mistakes_of("run: {dir: a}\nmodel: 5\ndata: {train: [a], seq_len: 8}\n"
                            "training: {max_steps: 5, global_batch_size: 8}\n"),
                {"[config] 2 mistakes:", "  c.yaml:2:8: model: 5; must be a map of keys",
                 "  c.yaml:4:12: training.max_steps: unknown key; did you mean training.steps?"});
}

TEST(Mistakes, SeveralInOneList) {
  expect_begins(
      mistakes_of(std::string(kMinimal) + "optimizer:\n  groups:\n"
                                          "    - {params: [a], lr_scale: -1, frozn: true}\n"
                                          "    - {params: b}\n"
                                          "    - {frozen: true}\n"
                                          "checkpoint: {init_from: $TESSERA_NO, resume: ~x}\n"),
      {"[config] 6 mistakes:", "  c.yaml:18:31: optimizer.groups[0].lr_scale: -1",
       "  c.yaml:18:35: optimizer.groups[0].frozn: unknown key; did you mean frozen?",
       "  c.yaml:19:16: optimizer.groups[1].params: b; must be a list",
       "  c.yaml:20:7: optimizer.groups[2].params missing",
       "  c.yaml:21:25: checkpoint.init_from: $TESSERA_NO; the variable TESSERA_NO is not set",
       "  c.yaml:21:46: checkpoint.resume: ~x; ~x as another user's home"});
}

TEST(Mistakes, OfAModelFromAFileTheyStandWhereItIsNamed) {
  const TempDir dir;
  const auto json = dir.write("config.json", R"({"model_type": "llama", "hidden_size": 66,
      "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 8,
      "rms_norm_eps": 1e-5})");
  expect_begins(mistakes_of("run: {dir: a}\nmodel:\n  config: " + json.string() +
                            "\ndata: {train: [a], seq_len: 8}\n"
                            "training: {steps: 5, global_batch_size: 8}\n"),
                {"[config] c.yaml:3:11: model.num_attention_heads: 4; must divide"});
}

struct Hint {
  const char* set;
  const char* part;
};

TEST(Mistakes, WordsOfOtherTrainers) {
  const Hint cases[] = {
      {"device=gpu", "did you mean cuda?"},
      {"device=CUDA", "did you mean cuda?"},
      {"precision.params=bfloat16", "did you mean bf16?"},
      {"precision.params=float16", "did you mean fp16?"},
      {"precision.params=float32", "did you mean fp32?"},
      {"precision.params=BF16", "did you mean bf16?"},
      {"precision.reduce=float32", "did you mean fp32?"},
      {"optimizer.moments=bfloat16", "did you mean bf16?"},
      {"optimizer.type=adamw_torch", "did you mean adamw?"},
      {"optimizer.type=AdamW", "did you mean adamw?"},
      {"schedule.type=cosine_with_warmup", "did you mean cosine?"},
      {"schedule.type=CosineAnnealingLR", "did you mean cosine?"},
      {"memory.recompute=true", "did you mean full?"},
      {"model.type=LlamaForCausalLM", "did you mean llama?"},
      {"training.log_samples=yes", "did you mean true?"},
      {"training.log_samples=0", "did you mean false?"},
      {"parallel.dp_shard=Auto", "did you mean auto?"},
      {"training.stop_after=None", "did you mean none?"},
      {"learning_rate=1e-3", "did you mean optimizer.lr?"},
      {"training.learning_rate=1e-3", "did you mean optimizer.lr?"},
      {"training.batch_size=8", "did you mean training.global_batch_size?"},
      {"training.max_steps=8", "did you mean training.steps?"},
      {"max_steps=8", "did you mean training.steps?"},
      {"training.per_device_train_batch_size=8", "did you mean training.micro_batch_size?"},
      {"parallel.tensor_parallel_size=2", "did you mean parallel.tp?"},
      {"training.tensor_parallel_size=2", "did you mean parallel.tp?"},
      {"training.gradient_accumulation_steps=2",
       "unknown key; it follows from training.global_batch_size"},
      {"training.num_train_epochs=2", "unknown key; a run is as long as training.steps says"},
      {"parallel.pipeline_parallel_size=2", "unknown key; there is no pipeline parallelism"},
      {"training.bf16=true", "unknown key; set precision.params: bf16"},
      {"optimizer.adam_beta1=0.9", "unknown key; set optimizer.betas"},
      {"training.warmup_steps=5", "did you mean schedule.warmup_steps?"},
      {"output_dir=x", "did you mean run.dir?"},
  };
  for (const Hint& hint : cases) {
    const auto lines = mistakes_of(kMinimal, {hint.set});
    ASSERT_EQ(lines.size(), 1u) << hint.set << ::testing::PrintToString(lines);
    EXPECT_NE(lines[0].find(hint.part), std::string::npos) << hint.set << ": " << lines[0];
  }
}

}  // namespace
}  // namespace tessera
