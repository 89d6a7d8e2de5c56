// A checkpoint of any tensor parallelism is loaded and saved again by any other, bit for bit: kv
// heads that several ranks hold, a vocabulary in uneven parts, tied embeddings, both moments.
#include "checkpoint/store/reader.h"
#include "models/llama/llama.h"
#include "parallel/executor/bucket_set.h"
#include "training/engine/load_states.h"
#include "training/engine/train_state.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

// Loads `from` (or draws every state) on the mesh and saves it as step number `step` of a run.
void load_and_save(const Config& config, MeshShape shape, int zero,
                   const std::filesystem::path& from, int64_t step) {
  run_thread_ranks(shape.world(), [&](Communicator& world) {
    Mesh mesh(shape, world.split(0, world.rank(), "world"));
    const auto owned = config.model->make_stages(config.data.seq_len, mesh, {});
    std::vector<Stage*> stages;
    for (const auto& stage : owned) stages.push_back(stage.get());
    const BucketSet set = make_buckets(stages, mesh, {.zero = zero});
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

TEST(Reshard, AnyTensorParallelismReadsAnyOther) {
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
  for (const MeshShape& shape :
       {MeshShape{1, 1, 1}, MeshShape{1, 1, 4}, MeshShape{1, 3, 2}, MeshShape{2, 1, 4},
        MeshShape{1, 2, 2}, MeshShape{2, 2, 1}, MeshShape{1, 2, 4}}) {
    SCOPED_TRACE(std::to_string(shape.dp_shard) + " x tp " + std::to_string(shape.tp));
    const auto from = checkpoints / step_dir_name(step);
    load_and_save(config, shape, static_cast<int>(step % 4), from, step + 1);
    ++step;
    EXPECT_EQ(read_states(config, step), states);
  }
}

}  // namespace
}  // namespace tessera
