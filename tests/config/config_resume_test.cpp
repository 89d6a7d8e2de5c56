// Which keys a resumed run may change.

#include <gtest/gtest.h>

#include "config/rules/check.h"
#include "config/rules/resume.h"
#include "config/save.h"
#include "config_text.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using testing::minimal;

using Lines = std::vector<std::string>;

ConfigDifference compare(const Lines& before, const Lines& now) {
  // Through text, as a manifest stores it.
  const auto saved = nlohmann::json::parse(to_json(minimal(before)).dump());
  return compare_for_resume(saved, minimal(now));
}

TEST(Resume, SameIsNoDifference) {
  const ConfigDifference difference =
      compare({"optimizer.lr=0.3", "run.seed=7"}, {"run.seed=7", "optimizer.lr=0.3"});
  EXPECT_EQ(difference.mathematics, Lines{});
  EXPECT_EQ(difference.other, Lines{});
}

TEST(Resume, MathematicsIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"model.hidden_size=128", "model.hidden_size: 64 -> 128"},
      {"model.rope_theta=1.0", "model.rope_theta: 10000.0 -> 1.0"},
      {"model.attention_dropout=0.1", "model.attention_dropout: 0.0 -> 0.1"},
      {"model.hidden_dropout=0.1", "model.hidden_dropout: 0.0 -> 0.1"},
      {"model.embedding_dropout=0.1", "model.embedding_dropout: 0.0 -> 0.1"},
      {"run.seed=1", "run.seed: 42 -> 1"},
      {"data.seq_len=64", "data.seq_len: 32 -> 64"},
      {"training.global_batch_size=16", "training.global_batch_size: 8 -> 16"},
      {"training.clip_grad_norm=0", "training.clip_grad_norm: 1.0 -> 0.0"},
      {"optimizer.lr=0.5", "optimizer.lr: 0.001 -> 0.5"},
      {"optimizer.betas=[0.9, 0.99]", "optimizer.betas: [0.9,0.95] -> [0.9,0.99]"},
      {"optimizer.weight_decay=0", "optimizer.weight_decay: 0.1 -> 0.0"},
      {"schedule.type=linear", "schedule.type: cosine -> linear"},
      {"schedule.warmup_steps=3", "schedule.warmup_steps: 0 -> 3"},
      {"schedule.min_lr_ratio=0", "schedule.min_lr_ratio: 0.1 -> 0.0"},
      {"optimizer.type=adam", "optimizer.type: adamw -> adam"},
      {"optimizer.moments=bf16", "optimizer.moments: fp32 -> bf16"},
      {"optimizer.groups=[{params: [a], frozen: true}]",
       "optimizer.groups: [] -> [{\"frozen\":true,\"lr_scale\":1.0,\"params\":[\"a\"],\"weight_"
       "decay\":\"default\"}]"},
      {"training.clip_grad_value=0.5", "training.clip_grad_value: 0.0 -> 0.5"},
      {"precision.params=bf16", "precision.params: fp32 -> bf16"},
  };
  for (const auto& [set, line] : cases) {
    const ConfigDifference difference = compare({}, {set});
    EXPECT_EQ(difference.mathematics, Lines{line});
    EXPECT_EQ(difference.other, Lines{});
  }
}

TEST(Resume, WhatIsNamedMayChange) {
  const Lines changes = {"optimizer.lr=0.5", "training.global_batch_size=16", "run.dir=b"};
  const ConfigDifference refused = compare({}, changes);
  EXPECT_EQ(refused.on_request, (Lines{"training.global_batch_size", "optimizer.lr"}));
  EXPECT_TRUE(refused.allowed.empty());
  Lines allowing = changes;
  allowing.push_back("checkpoint.allow_change=[optimizer.lr]");
  const ConfigDifference one = compare({}, allowing);
  EXPECT_EQ(one.mathematics, Lines{"training.global_batch_size: 8 -> 16"});
  EXPECT_EQ(one.on_request, Lines{"training.global_batch_size"});
  ASSERT_EQ(one.allowed.size(), 1U);
  EXPECT_EQ(one.allowed[0].text(), "optimizer.lr: 0.001 -> 0.5");
  EXPECT_EQ(one.allowed[0].before, 0.001);
}

// A list as for every key of a model, data and so on: which of them have a meaning when changed.
TEST(Resume, ANameThatCannotBeAllowedIsRefusedWithTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"model.hidden_size",
       "it cannot be changed: the checkpoint's weights are those of its model"},
      {"model.initializer_range", "it shapes the weights of a new run alone"},
      {"data.kind", "a model takes samples of one kind"},
      {"data.pad_id", "learned what that token means"},
      {"parallel.tp", "it may change without being named"},
      {"schedule.steps", "it may change without being named"},
      {"optimizer.lrr", "did you mean optimizer.lr?"},
      {"nonsense", "it is no key that may be named; these are: run.seed, "},
  };
  for (const auto& [key, why] : cases) {
    const std::string error = error_of([&, key = key] {
      check_config(minimal({std::string("checkpoint.allow_change=[") + key + "]"}));
    });
    EXPECT_NE(error.find(std::string("checkpoint.allow_change: ") + key), std::string::npos)
        << error;
    EXPECT_NE(error.find(why), std::string::npos) << error;
  }
  check_config(
      minimal({"checkpoint.allow_change=[run.seed, data.train, data.seq_len, "
               "model.hidden_dropout, optimizer.groups, precision.params]"}));
}

TEST(Resume, OtherKeysMayChange) {
  const std::pair<const char*, const char*> cases[] = {
      {"run.dir=b", "run.dir: runs/x -> b"},
      {"parallel.tp=2", "parallel.tp: 1 -> 2"},
      {"parallel.dp_shard=4", "parallel.dp_shard: auto -> 4"},
      {"training.micro_batch_size=4", "training.micro_batch_size: 1 -> 4"},
      {"training.steps=200", "training.steps: 100 -> 200"},
      {"training.stop_after=50", "training.stop_after: none -> 50"},
      {"training.log_every=5", "training.log_every: 1 -> 5"},
      {"training.log_samples=true", "training.log_samples: false -> true"},
      {"training.on_nonfinite=skip", "training.on_nonfinite: stop -> skip"},
      {"training.max_skips=3", "training.max_skips: 10 -> 3"},
      {"memory.recompute=full", "memory.recompute: none -> full"},
      {"data.train=[b]", "data.train: [\"data/a\"] -> [\"b\"]"},
      {"data.valid=[v]", "data.valid: [] -> [\"v\"]"},
      {"eval.batches=2", "eval.batches: 8 -> 2"},
      {"checkpoint.every=5", "checkpoint.every: 0 -> 5"},
      {"checkpoint.init_from=x", "checkpoint.init_from: none -> x"},
      {"communication.timeout=30", "communication.timeout: 600 -> 30"},
      {"communication.shared_memory=false", "communication.shared_memory: true -> false"},
      {"debug.check_collectives=true", "debug.check_collectives: false -> true"},
  };
  for (const auto& [set, line] : cases) {
    const ConfigDifference difference = compare({}, {set});
    EXPECT_EQ(difference.other, Lines{line});
    EXPECT_EQ(difference.mathematics, Lines{});
  }
}

TEST(Resume, KeysOfOtherVersions) {
  nlohmann::json saved = to_json(minimal());
  saved["optimizer"].erase("eps");  // an older version without the key: its default was meant
  saved.erase("debug");
  EXPECT_EQ(compare_for_resume(saved, minimal()).mathematics, Lines{});
  EXPECT_EQ(compare_for_resume(saved, minimal()).other, Lines{});
  EXPECT_EQ(compare_for_resume(saved, minimal({"optimizer.eps=0.5"})).mathematics,
            Lines{"optimizer.eps: (absent) -> 0.5"});
  saved["optimizer"]["rho"] = 0.9;  // a newer version: its meaning is not known here
  saved["moe"] = {{"experts", 8}};
  EXPECT_EQ(compare_for_resume(saved, minimal()).mathematics,
            (Lines{"moe: {\"experts\":8} -> (absent)", "optimizer.rho: 0.9 -> (absent)"}));
}

}  // namespace
}  // namespace tessera
