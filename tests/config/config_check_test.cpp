// Rules between keys, each with the values that would work.

#include <gtest/gtest.h>

#include <cmath>

#include "config/load.h"
#include "config/rules/check.h"
#include "config/rules/check_device.h"
#include "config/rules/check_inject.h"
#include "config/rules/resolve_mesh.h"
#include "config_text.h"
#include "parallel/device/cuda_support.h"
#include "support/folders.h"

namespace tessera {
namespace {

using testing::expect_user_error;
using testing::minimal;
using testing::sizes;

struct BadConfig {
  std::vector<std::string> set;
  std::vector<std::string> parts;
};

TEST(Check, RefusesCombinations) {
  // Minimal: hidden 64, intermediate 192, 4 heads, vocabulary 256, 100 steps.
  const std::vector<BadConfig> cases = {
      {{"model.num_attention_heads=3"},
       {"model.num_attention_heads: 3; must divide model.hidden_size 64", "1, 2, 4, 8, 16, 32"}},
      {{"model.num_attention_heads=64"}, {"64 / 64 = 1", "must be even", "1, 2, 4, 8, 16, 32"}},
      {{"model.head_dim=16", "model.hidden_size=66"},
       {"model.num_attention_heads: 4; must divide model.hidden_size 66 in a llama", "1, 2, 3, 6"}},
      {{"model.rope_scaling=linear"}, {"model.rope_factor: 1; must be above 1"}},
      {{"model.num_key_value_heads=3"},
       {"model.num_key_value_heads: 3; must divide model.num_attention_heads 4", "1, 2, 4"}},
      {{"model.num_key_value_heads=8"}, {"model.num_key_value_heads: 8; must divide"}},
      {{"parallel.tp=3"},
       {"parallel.tp: 3; must divide model.num_attention_heads 4", "these work: 1, 2, 4"}},
      {{"parallel.tp=6", "model.num_attention_heads=12", "model.hidden_size=96",
        "model.num_key_value_heads=4"},
       {"parallel.tp: 6; must divide, or be a multiple of, model.num_key_value_heads 4",
        "these work: 1, 2, 4, 12"}},
      {{"parallel.tp=4", "parallel.sequence_parallel=true", "training.micro_batch_size=2",
        "data.seq_len=7"},
       {"parallel.sequence_parallel: true", "training.micro_batch_size 2 x data.seq_len 7 = 14",
        "a multiple of 4 as micro_batch_size", "a data.seq_len of 8"}},
      {{"parallel.tp_overlap=ring"},
       {"parallel.tp_overlap: ring", "set parallel.sequence_parallel: true"}},
      {{"parallel.tp=2", "parallel.sequence_parallel=true", "memory.loss_chunk=3"},
       {"memory.loss_chunk: 3", "multiples of 2 work, such as 4"}},
      {{"parallel.tp=4", "model.intermediate_size=190"},
       {"parallel.tp: 4; must divide model.intermediate_size 190", "these work: 1, 2"}},
      {{"parallel.tp=4", "model.vocab_size=3"},
       {"parallel.tp: 4; must be at most model.vocab_size 3", "these work: 1, 2"}},
      {{"parallel.reshard_after_forward=false", "parallel.zero=2"},
       {"parallel.reshard_after_forward: false", "zero 2", "set zero: 3"}},
      {{"parallel.reshard_after_forward=2", "parallel.zero=0"},
       {"parallel.reshard_after_forward: 2", "zero 0"}},
      {{"parallel.reduce_per_micro_batch=true", "parallel.zero=1"},
       {"parallel.reduce_per_micro_batch: true", "zero 1", "set zero: 2"}},
      {{"device=cuda", "model.hidden_dropout=0.1"},
       {"model.hidden_dropout: 0.1; dropout masks are made on the CPU only, and device is cuda"}},
      {{"device=cuda", "memory.offload_dir=/tmp"},
       {"memory.offload_dir: /tmp; moments on a disk are updated by the CPU"}},
      {{"device=cuda", "debug.check_collectives=true"},
       {"debug.check_collectives: true; calls are compared on the CPU alone, and device is cuda"}},
      {{"device=cuda", "memory.offload=all", "parallel.zero=1"},
       {"memory.offload: all; gradients that are kept in full", "zero 1", "zero: 2 or 3"}},
      {{"precision.reduce=bf16_wire", "precision.params=fp64"}, {"fp64"}},
      {{"precision.output=fp32", "precision.params=fp64"}, {"fp64"}},
      {{"precision.buffers=bf16", "precision.params=fp64"}, {"precision.buffers", "fp64"}},
      {{"precision.reduce=bf16", "precision.params=fp16"}, {"precision.reduce", "fp16"}},
      {{"precision.output=bf16", "precision.params=fp16"}, {"precision.output: bf16", "fp16"}},
      {{"precision.keep_fp32=['*']"}, {"precision.keep_fp32: [*]", "params bf16 or fp16"}},
      {{"memory.recompute_every=2"}, {"memory.recompute_every: 2", "needs memory.recompute: full"}},
      {{"memory.offload=optimizer"},
       {"memory.offload: optimizer", "in the host's memory already", "memory.offload_dir"}},
      {{"memory.offload=all"}, {"memory.offload: all", "in the host's memory already"}},
      {{"optimizer.type=sgd", "optimizer.betas=[0.9, 0.99]"},
       {"sgd; it has neither betas nor eps"}},
      {{"optimizer.type=sgd", "optimizer.nesterov=true"},
       {"optimizer.nesterov: true; it needs optimizer.momentum above 0"}},
      {{"optimizer.type=sgd", "optimizer.moments=bf16"},
       {"optimizer.moments: bf16; sgd with optimizer.momentum 0 keeps no moments"}},
      {{"memory.offload_dir=d", "optimizer.type=sgd"},
       {"memory.offload_dir: d; optimizer.type: sgd with momentum 0 keeps no moments"}},
      {{"optimizer.moments=bf16", "precision.params=fp64"},
       {"optimizer.moments: bf16; precision.params: fp64 is fp64 throughout"}},
      {{"optimizer.momentum=0.9"}, {"optimizer.momentum: 0.9", "only optimizer.type: sgd"}},
      {{"optimizer.groups=[{params: [a]}, {params: []}]"},
       {"optimizer.groups[1].params: []; must be at least one name pattern"}},
      {{"optimizer.groups=[{params: [a], frozen: true, lr_scale: 2}]"},
       {"optimizer.groups[0].frozen: true", "remove those keys"}},
      {{"training.clip_grad_value=0.5"},
       {"training.clip_grad_value: 0.5; training.clip_grad_norm is 1.0 also",
        "set training.clip_grad_norm: 0"}},
      {{"precision.loss_scale=dynamic"},
       {"precision.loss_scale: dynamic; only precision.params: "
        "fp16"}},
      {{"precision.params=bf16", "precision.loss_scale=128"},
       {"precision.loss_scale: 128.0; only"}},
      {{"precision.initial_loss_scale=2"},
       {"2.0, 2000, 1; they belong to a dynamic loss scale", "remove them"}},
      {{"training.micro_batch_size=9"},
       {"training.micro_batch_size: 9; must be at most training.global_batch_size 8",
        "from 1 to 8 works"}},
      {{"data.train=[]"}, {"data.train: []; must name at least one prefix"}},
      {{"eval.every=10"}, {"eval.every: 10; validation needs data.valid"}},
      {{"schedule.warmup_steps=200", "schedule.steps=50", "training.steps=400"},
       {"schedule.warmup_steps: 200; must be at most schedule.steps 50"}},
      {{"schedule.warmup_steps=200", "training.steps=20"},
       {"schedule.warmup_steps: 200; must be at most training.steps 20",
        "has training.stop_after: 20"}},
      {{"training.stop_after=101"},
       {"training.stop_after: 101; must be at most training.steps 100"}},
      {{"checkpoint.resume=a/step", "checkpoint.init_from=b/step"},
       {"checkpoint.init_from: b/step", "checkpoint.resume a/step", "remove one"}},
      {{"checkpoint.keep=0", "checkpoint.keep_best=2", "eval.every=1", "data.valid=[v]"},
       {"checkpoint.keep: 0; it keeps all", "keep_every 0 and keep_best 2", "set keep to 1"}},
      {{"checkpoint.keep_every=250", "checkpoint.every=100"},
       {"checkpoint.keep_every: 250; must be a multiple of checkpoint.every 100", "such as 300"}},
      {{"checkpoint.keep_every=100"},
       {"checkpoint.keep_every: 100", "checkpoint.every 0", "set checkpoint.every"}},
      {{"checkpoint.keep_best=2"},
       {"checkpoint.keep_best: 2; it goes by the validation loss, and eval.every is 0"}},
      {{"debug.inject={rank: 0, step: 3, at: data, do: skip}"},
       {"debug.inject.do: skip; it is done to a collective", "set debug.inject.at: collective"}},
      {{"debug.inject={rank: 0, at: start, do: resize}"},
       {"debug.inject.do: resize; it is done to a collective"}},
      {{"debug.inject={rank: 0, step: 3, at: start, do: throw}"},
       {"debug.inject.step: 3; the start", "before the first step; leave step out"}},
      {{"debug.inject={rank: 0, at: data, do: throw}"},
       {"debug.inject.step: 0; must be from 1 to training.steps 100"}},
      {{"debug.inject={rank: 0, step: 101, at: compute, do: kill}"},
       {"debug.inject.step: 101; must be from 1 to training.steps 100"}},
      {{"debug.inject={rank: 0, step: 4, at: validation, do: stop}", "eval.every=3",
        "data.valid=[v]"},
       {"debug.inject.step: 4; no validation follows it (eval.every: 3)"}},
      {{"debug.inject={rank: 0, step: 100, at: validation, do: stop}"},
       {"debug.inject.step: 100; no validation follows it (eval.every: 0)"}},
      {{"debug.inject={rank: 0, step: 4, at: save, do: exit}", "checkpoint.every=3"},
       {"debug.inject.step: 4; it is not saved (checkpoint.every: 3)"}},
  };
  for (const BadConfig& bad : cases) {
    const Config config = minimal(bad.set);
    expect_user_error([&] { check_config(config); }, bad.parts, bad.set[0]);
  }
}

// A login node may check what only compute nodes can run.
TEST(Check, ADeviceThatIsNotHereIsRefusedOnlyByWhatComputes) {
  const Config config = minimal({"device=cuda"});
  EXPECT_NO_THROW(check_config(config));
  expect_user_error(
      [&] { check_device_here(config); },
      {built_with_cuda() ? "device: cuda; this process sees no GPU"
                         : "device: cuda; this program was built without CUDA and computes on cpu"},
      "cuda");
  EXPECT_NO_THROW(check_device_here(minimal()));
}

TEST(Check, AcceptsTheEdges) {
  const std::vector<std::vector<std::string>> cases = {
      {"parallel.tp=4"},
      {"parallel.tp=4", "model.num_key_value_heads=1", "model.vocab_size=257",
       "parallel.sequence_parallel=true", "parallel.tp_overlap=ring", "memory.loss_chunk=8"},
      {"schedule.warmup_steps=100"},
      {"schedule.warmup_steps=200", "schedule.steps=300"},  // a part of a longer schedule
      {"schedule.warmup_steps=0", "training.steps=1"},
      {"training.stop_after=100"},
      {"training.log_every=0", "eval.every=0", "checkpoint.every=0", "checkpoint.keep=0"},
      {"training.global_batch_size=7", "training.micro_batch_size=2"},  // weight-zero micro-batches
      {"training.global_batch_size=4", "training.micro_batch_size=4"},
      {"precision.params=bf16"},
      {"memory.recompute=full", "memory.recompute_every=2"},
      {"memory.offload=none", "memory.offload_dir=/scratch"},
      {"parallel.zero=0", "parallel.dp_replicate=2"},
      {"parallel.reshard_after_forward=3", "parallel.reduce_per_micro_batch=false"},
      {"precision.reduce=bf16_wire"},
      {"precision.params=fp16"},
      {"precision.params=fp64"},
      {"precision.params=bf16", "precision.keep_fp32=['*']", "precision.output=fp32"},
      {"memory.recompute=selective"},
      {"model.initializer_range=0"},
      {"optimizer.betas=[0, 0]"},
      {"optimizer.type=sgd"},
      {"optimizer.type=sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true",
       "optimizer.moments=bf16"},
      {"training.clip_grad_value=0.5", "training.clip_grad_norm=0"},
      {"checkpoint.init_from=b/step"},
      {"checkpoint.resume=none", "checkpoint.init_from=b/step"},
      {"eval.every=1", "data.valid=[v]"},
      {"checkpoint.keep_every=500", "checkpoint.every=250"},
      {"checkpoint.keep_best=3", "eval.every=7", "data.valid=[v]", "checkpoint.keep=1"},
      {"debug.inject={rank: 0, at: start, do: stop}"},
      {"debug.inject={rank: 7, step: 100, at: collective, do: resize}"},
      {"debug.inject={rank: 0, step: 100, at: save, do: kill}"},
      {"debug.inject={rank: 0, step: 4, at: save, do: kill}", "training.stop_after=4"},
      {"debug.inject={rank: 0, step: 100, at: validation, do: throw}", "eval.every=7",
       "data.valid=[v]"},
  };
  for (const auto& set : cases) {
    SCOPED_TRACE(set[0]);
    EXPECT_NO_THROW(check_config(minimal(set)));
  }
}

TEST(Check, AnInjectedFaultNeedsItsRank) {
  const auto fault = [](const std::string& text) { return minimal({"debug.inject=" + text}); };
  const Config last = fault("{rank: 3, step: 1, at: data, do: throw}");
  EXPECT_NO_THROW(check_inject(last, 4));
  expect_user_error([&] { check_inject(last, 3); },
                    {"debug.inject.rank: 3; with 3 ranks it must be from 0 to 2"}, "3 ranks");
  expect_user_error([&] { check_inject(last, 1); },
                    {"debug.inject.rank: 3; with 1 rank it must be 0"}, "1 rank");
  const Config collective = fault("{rank: 0, step: 1, at: collective, do: throw}");
  EXPECT_NO_THROW(check_inject(collective, 2));
  expect_user_error([&] { check_inject(collective, 1); },
                    {"debug.inject.at: collective; a run on one rank has no collectives"}, "alone");
  EXPECT_NO_THROW(check_inject(minimal(), 1));
}

TEST(Check, ConfigurationsMadeInCode) {
  const auto refuse = [](auto change, const char* part) {
    Config config = minimal();
    change(config);
    expect_user_error([&] { check_config(config); }, {part}, part);
  };
  refuse([](Config& c) { c.training.micro_batch_size = 0; },
         "training.micro_batch_size: 0; must be");
  refuse([](Config& c) { sizes(c).num_key_value_heads = 0; },
         "model.num_key_value_heads: 0; must be");
  refuse([](Config& c) { c.optimizer.lr = std::nan(""); }, "optimizer.lr: nan; must be");
  refuse([](Config& c) { c.optimizer.beta2 = 1.0; }, "optimizer.betas: [0.9, 1.0]; must be");
  refuse([](Config& c) { c.optimizer.groups = {{.params = {"a"}, .lr_scale = -1.0}}; },
         "optimizer.groups[0].lr_scale: -1.0; must be");
  refuse([](Config& c) { c.device = "tpu"; }, "device: (none of its words); must be cpu or cuda");
  refuse([](Config& c) { c.run.dir = ""; }, "run.dir");
  refuse([](Config& c) { c.run.seed = ~uint64_t{0}; }, "run.seed: -1");
  refuse([](Config& c) { c.parallel.tp = -2; }, "parallel.tp: -2");
  refuse([](Config& c) { c.eval.batches = 0; }, "eval.batches: 0");
}

TEST(Check, DataOfAnotherKind) {
  const struct {
    std::vector<std::string> set;
    std::vector<std::string> parts;
  } cases[] = {
      {{"data.kind=images", "data.seq_len=none"},
       {"data.kind: images; the model reads tokens", "set data.kind: tokens"}},
      {{"data.flip=true"}, {"data.flip: it is a key of data.kind images", "data.kind is tokens"}},
      {{"data.mean=[0.5]"}, {"data.mean: it is a key of data.kind images"}},
      {{"data.source_len=4"}, {"data.source_len: it is a key of data.kind pairs"}},
      {{"data.pad_id=0"}, {"data.pad_id: it is a key of data.kind pairs"}},
      {{"data.train_target=[a]"}, {"data.train_target: it is a key of data.kind pairs"}},
      {{"data.seq_len=none"}, {"data.seq_len: none; data.kind tokens needs it"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.set[0]);
    expect_user_error([&] { check_config(minimal(c.set)); }, c.parts, c.set[0]);
  }
}

AnyModel gpt2(int64_t n_embd, int64_t n_head) {
  AnyModel model(make_model("gpt2"));
  for (Field& field : model->fields())
    for (const auto& [name, value] : {std::pair<std::string, int64_t>{"n_embd", n_embd},
                                      {"n_layer", 1},
                                      {"n_head", n_head},
                                      {"n_positions", 8},
                                      {"vocab_size", 16}})
      if (field.name == name) std::get<IntegerValue>(field.value).set(value);
  return model;
}

// Known fault N07: positions beyond the table wrapped round, or were read out of range.
TEST(Check, ASequenceLongerThanThePositionTable) {
  Config config = minimal();
  config.model = gpt2(8, 2);
  config.data.seq_len = 8;
  EXPECT_NO_THROW(check_config(config));
  config.data.seq_len = 16;
  expect_user_error([&] { check_config(config); },
                    {"data.seq_len: 16; the model has 8 learned positions (model.n_positions)"},
                    "16 of 8");
}

// Learned positions turn no pairs, so heads may have any width.
TEST(Check, HeadsOfGpt2OfOddWidth) {
  EXPECT_NO_THROW(check_model(gpt2(9, 3)));
  EXPECT_NO_THROW(check_model(gpt2(3, 3)));
  expect_user_error([&] { check_model(gpt2(9, 2)); },
                    {"model.n_head: 2; must divide model.n_embd 9; these would: 1, 3, 9"}, "9 / 2");
}

TEST(Mesh, Resolves) {
  EXPECT_EQ(resolve_mesh(minimal(), 1), (MeshShape{1, 1, 1}));
  EXPECT_EQ(resolve_mesh(minimal(), 3), (MeshShape{1, 3, 1}));
  EXPECT_EQ(resolve_mesh(minimal({"parallel.tp=2"}), 4), (MeshShape{1, 2, 2}));
  EXPECT_EQ(resolve_mesh(minimal({"parallel.tp=4"}), 4), (MeshShape{1, 1, 4}));
  EXPECT_EQ(resolve_mesh(minimal({"parallel.tp=2", "parallel.dp_shard=3"}), 6),
            (MeshShape{1, 3, 2}));
}

TEST(Mesh, RefusesWorlds) {
  const struct {
    std::vector<std::string> set;
    int world;
    std::vector<std::string> parts;
  } cases[] = {
      {{"parallel.dp_shard=3", "parallel.tp=2"},
       4,
       {"dp_shard 3", "tp 2", "but 4 are started", "dp_shard: 2 (or auto) would fit",
        "start 6 ranks"}},
      {{"parallel.dp_shard=2", "parallel.tp=4"},
       6,
       {"= 8 ranks, but 6", "no dp_shard fits tp 4 to 6 ranks"}},
      {{"parallel.tp=4"},
       6,
       {"tp 4 = 4 must divide the number of ranks, which is 6", "would work with 6 ranks: 1, 2",
        "start a multiple of 4 ranks"}},
      {{"parallel.tp=2"}, 1, {"tp 2", "which is 1", "would work with 1 ranks: 1"}},
  };
  for (const auto& bad : cases) {
    const Config config = minimal(bad.set);
    expect_user_error([&] { resolve_mesh(config, bad.world); }, bad.parts, bad.set[0]);
  }
}

// Those that come with the program, for the number of ranks that they name.
TEST(Check, EveryConfigurationOfTheFolder) {
  int seen = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(TESSERA_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    ++seen;
    const Config config = load_config(entry.path(), {});
    EXPECT_NO_THROW(check_config(config));
    std::ifstream in(entry.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (text.find("GPUs") != std::string::npos) {
      EXPECT_EQ(config.device, "cuda");
    }
    const size_t ranks = text.find("--ranks ");
    if (ranks != std::string::npos) {
      EXPECT_NO_THROW(resolve_mesh(config, std::stoi(text.substr(ranks + 8))));
    }
  }
  EXPECT_GE(seen, 5);
}

}  // namespace
}  // namespace tessera
