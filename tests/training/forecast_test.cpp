// The memory that `config check` foretells is what the run says when it starts.

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <sstream>

#include "base/text/quantities.h"
#include "config/keys/key_places.h"
#include "parallel/executor/memory_model.h"
#include "parallel/fsdp/tp_gradient_sum.h"
#include "parallel/imagined_mesh.h"
#include "support/error_of.h"
#include "training/engine/memory_forecast.h"
#include "training/engine/run_options.h"
#include "training/output/console.h"
#include "training/start/open_data.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

// What the run's log says that arithmetic said.
std::string said_by(const Config& config) {
  run(config);
  std::ifstream log(std::filesystem::path(config.run.dir) / "logs/train.log");
  std::stringstream text;
  text << log.rdbuf();
  const std::string begin = "from the parameter counts: ", all = text.str();
  const size_t at = all.find(begin);
  if (at == std::string::npos) return "nothing: " + all;
  return all.substr(at + begin.size(), all.find('\n', at) - at - begin.size());
}

MeshShape shape_of(const Config& config) {
  return {config.parallel.dp_replicate, config.parallel.dp_shard, config.parallel.tp};
}

TEST(Forecast, IsWhatTheRunSays) {
  const TemporaryFolder folder;
  const struct {
    const char* name;
    int dp_shard, tp, zero;
    ParamsDtype params;
    bool sequence_parallel;
  } cases[] = {
      {"one", 1, 1, 3, ParamsDtype::kFp32, false},   {"ddp", 2, 1, 0, ParamsDtype::kBf16, false},
      {"zero1", 2, 1, 1, ParamsDtype::kBf16, false}, {"zero2", 2, 2, 2, ParamsDtype::kFp32, true},
      {"zero3", 2, 2, 3, ParamsDtype::kBf16, true},  {"copies", 1, 8, 3, ParamsDtype::kFp32, false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Config config = tiny_config(folder, c.name);
    config.training.steps = 2;
    config.parallel.dp_shard = c.dp_shard;
    config.parallel.tp = c.tp;
    config.parallel.zero = c.zero;
    config.parallel.sequence_parallel = c.sequence_parallel;
    config.precision.params = c.params;
    config.optimizer.groups = {{.params = {"model.embed_tokens.weight"}, .frozen = true}};
    EXPECT_EQ(bytes_text(forecast_memory(config, shape_of(config)).ledger.total()),
              said_by(config));
  }
}

// The one part of a rank's memory that has buckets of its own arithmetic.
TEST(Forecast, TheBufferOfGradientsThatAreSummedOverTp) {
  const TemporaryFolder folder;
  for (const int zero : {0, 3}) {
    for (const bool sequence_parallel : {false, true}) {
      Config config = tiny_config(folder, "tp");
      config.parallel.tp = 8;  // twice the key and value heads
      config.parallel.dp_shard = 2;
      config.parallel.zero = zero;
      config.parallel.sequence_parallel = sequence_parallel;
      const MeshShape shape = shape_of(config);
      std::atomic<int64_t> all{0};  // a shard may have none
      run_thread_ranks(shape.world(), [&](Communicator& world) {
        Mesh mesh(shape, world.split(0, world.rank(), "world"));
        const auto owned = config.model->make_stages(16, mesh, model_options(config));
        std::vector<Stage*> stages;
        for (const auto& stage : owned) stages.push_back(stage.get());
        const BucketPlan plan = plan_buckets(stages, policy_of(config));
        const int64_t expected = tp_sum_bytes(plan, shape, mesh.dp_shard_rank());
        const BucketSet buckets = make_buckets(plan, mesh);
        MemoryLedger ledger;
        TpGradientSum(buckets.pointers(), mesh).add_to(ledger);
        EXPECT_EQ(ledger.bytes(MemoryClass::kStaging), expected);
        all += expected;
      });
      EXPECT_GT(all, 0);
    }
  }
}

std::string memory_mistake(const Config& config, const MeshShape& mesh, int64_t limit) {
  Mistakes mistakes;
  const KeyPlaces nowhere;
  PlacedReport report(nowhere, mistakes);
  check_memory_limit(forecast_memory(config, mesh), limit, report);
  return error_of([&] { mistakes.throw_if_any(); });
}

// 13 thousand million parameters with two moments in fp32: 208 GB and more at zero 0, on any number
// of ranks.
TEST(Forecast, WhatDoesNotFitNamesTheCheapestThatWould) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "13b");
  LlamaConfig& model = sizes(config);
  model.hidden_size = 5120;
  model.intermediate_size = 13824;
  model.num_hidden_layers = 40;
  model.num_attention_heads = model.num_key_value_heads = 40;
  model.vocab_size = 32000;
  config.device = "cuda";
  config.parallel.zero = 0;
  config.precision.params = ParamsDtype::kBf16;
  constexpr int64_t kCard = 80'000'000'000;
  const std::string error = memory_mistake(config, {1, 32, 1}, kCard);
  EXPECT_NE(error.find("memory: rank 0 would hold "), std::string::npos) << error;
  EXPECT_NE(error.find("parallel.zero: 1"), std::string::npos) << error;
  config.parallel.zero = 3;
  EXPECT_EQ(forecast_memory(config, {1, 32, 1}).ledger.total() < kCard, true);
}

TEST(Forecast, PatternsThatFitNoParameterAreFound) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "patterns");
  config.optimizer.groups = {{.params = {"model.embed_token.weight"}}};
  EXPECT_NE(error_of([&] {
              forecast_memory(config, {1, 1, 1});
            }).find("model.embed_tokens.weight"),
            std::string::npos);
}

TEST(Forecast, ItsMeshCannotCommunicate) {
  Mesh mesh = imagined_mesh({2, 3, 4}, 17);
  EXPECT_EQ(mesh.tp_rank(), 1);
  EXPECT_EQ(mesh.dp_shard_rank(), 1);
  EXPECT_EQ(mesh.dp_replicate_rank(), 1);
  EXPECT_EQ(mesh.tp_group().size(), 4);
  EXPECT_EQ(mesh.gather_group().size(), 3);
  EXPECT_EQ(mesh.replicate_group().size(), 2);
  EXPECT_THROW(mesh.world().barrier(), Error);
}

std::string data_mistakes(const Config& config) {
  Mistakes mistakes;
  const KeyPlaces nowhere;
  PlacedReport report(nowhere, mistakes);
  check_data_files(config, report);
  return error_of([&] { mistakes.throw_if_any(); });
}

TEST(DataFiles, AllThatIsMissingIsSaidAtOnce) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "data");
  EXPECT_EQ(data_mistakes(config), "no error");
  config.data.train.push_back("nowhere/a");
  config.data.train.push_back("nowhere/b");
  config.data.valid = {"nowhere/v"};
  std::string error = data_mistakes(config);
  EXPECT_NE(error.find("2 mistakes"), std::string::npos) << error;
  EXPECT_NE(error.find("data.train[1]: "), std::string::npos) << error;
  EXPECT_NE(error.find("nowhere/b"), std::string::npos) << error;
  EXPECT_EQ(error.find("nowhere/v"), std::string::npos) << "no validation reads it: " << error;
  config.eval.every = 5;
  error = data_mistakes(config);
  EXPECT_NE(error.find("data.valid[0]: "), std::string::npos) << error;
}

TEST(DataFiles, WhatDoesNotFitTheModelOrTheBatchIsFound) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "data");
  config.training.global_batch_size = 101;
  EXPECT_NE(data_mistakes(config).find("less than one global batch of 101"), std::string::npos);
  config.training.global_batch_size = 16;
  sizes(config).vocab_size = 32;
  EXPECT_NE(data_mistakes(config).find("outside the vocabulary"), std::string::npos);
}

}  // namespace
}  // namespace tessera
