// A checkpoint of any layout is loaded and saved again by any other, bit for bit: kv heads that
// several ranks hold, a vocabulary in uneven parts, tied embeddings, both moments, halves.
#include "checkpoint/store/reader.h"
#include "models/llama/llama.h"
#include "parallel/executor/bucket_set.h"
#include "training/engine/load_states.h"
#include "training/engine/train_state.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

// Loads `from` (or draws every state) on the mesh and saves it as step number `step` of a run.
void load_and_save(const Config& config, MeshShape shape, const ShardingPolicy& policy,
                   const std::filesystem::path& from, int64_t step) {
  run_thread_ranks(shape.world(), [&](Communicator& world) {
    Mesh mesh(shape, world.split(0, world.rank(), "world"));
    const auto owned = config.model->make_stages(config.data.seq_len, mesh, {});
    std::vector<Stage*> stages;
    for (const auto& stage : owned) stages.push_back(stage.get());
    const BucketSet set = make_buckets(stages, mesh, policy);
    const auto buckets = set.pointers();
    const std::vector<std::string> names = {kStateParam, kStateExpAvg, kStateExpAvgSq};
    CheckpointReader reader(from);
    load_states(buckets, mesh, names, reader);
    CheckpointManager manager(std::filesystem::path(config.run.dir) / "checkpoints", 0,
                              mesh.world(), [](const std::string&) {});
    Manifest manifest = reader.manifest();
    manifest.step = step;
    manager.save(std::move(manifest), state_pieces(buckets, mesh, names));
  });
}

// In a cycle, at each stage of ZeRO that holds its states in a way of its own.
const std::vector<MeshShape> kShapes = {{1, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 2, 2}, {1, 4, 1},
                                        {1, 1, 4}, {2, 2, 1}, {1, 3, 2}, {2, 1, 4}, {1, 2, 4}};

TEST(Reshard, AnyLayoutReadsAnyOther) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  sizes(config).num_key_value_heads = 2;  // held by two ranks each at tp 4
  sizes(config).vocab_size = 67;
  sizes(config).tie_word_embeddings = true;
  config.training.steps = 2;
  config.parallel.tp = 4;
  config.parallel.dp_shard = 2;
  config.parallel.sequence_parallel = true;
  run(config);
  const auto states = read_states(config, 2);
  ASSERT_EQ(states.at("model.embed_tokens.weight/exp_avg").size(), 67U * 64U);
  int64_t step = 2;
  const std::filesystem::path checkpoints = std::filesystem::path(config.run.dir) / "checkpoints";
  for (const int zero : {0, 2, 3}) {
    for (const MeshShape& shape : kShapes) {
      SCOPED_TRACE(fmt::format("zero {} on {} x {} x tp {}", zero, shape.dp_replicate,
                               shape.dp_shard, shape.tp));
      load_and_save(config, shape, {.zero = zero}, checkpoints / step_dir_name(step), step + 1);
      ++step;
      EXPECT_EQ(read_states(config, step), states);
    }
  }
}

// States keep the dtype that they were saved with, whatever the parameters' is.
TEST(Reshard, MomentsOfHalvesKeepTheirDtypeAndBits) {
  for (const bool halves : {false, true}) {
    const TemporaryFolder folder;
    Config config = tiny_config(folder, "run");
    config.precision.params = ParamsDtype::kBf16;
    config.optimizer.moments = halves ? MomentsDtype::kBf16 : MomentsDtype::kFp32;
    config.training.steps = 2;
    config.parallel.dp_shard = 2;
    run(config);
    const auto states = read_states(config, 2);
    const std::filesystem::path checkpoints = std::filesystem::path(config.run.dir) / "checkpoints";
    load_and_save(config, {1, 2, 2},
                  {.params = at::kBFloat16, .moment_dtype = halves ? at::kBFloat16 : at::kFloat},
                  checkpoints / step_dir_name(2), 3);
    EXPECT_EQ(read_states(config, 3), states);
    const Dtype dtype = halves ? Dtype::kBF16 : Dtype::kF32;
    for (const int64_t step : {2, 3}) {
      CheckpointReader reader(checkpoints / step_dir_name(step));
      for (const TensorInfo& tensor : reader.manifest().tensors) {
        EXPECT_EQ(reader.stored_dtype(tensor.name, kStateExpAvg), dtype) << tensor.name;
        EXPECT_EQ(reader.stored_dtype(tensor.name, kStateExpAvgSq), dtype) << tensor.name;
        EXPECT_EQ(reader.stored_dtype(tensor.name, kStateParam), Dtype::kF32) << tensor.name;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
