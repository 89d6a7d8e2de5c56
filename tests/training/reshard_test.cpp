// A checkpoint of any layout is loaded and saved again by any other, bit for bit: kv heads that
// several ranks hold, a vocabulary in uneven parts, tied embeddings, both moments, halves.
#include "checkpoint/tools/reshard.h"
#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/store/reader.h"
#include "checkpoint/tools/diff.h"
#include "models/llama/llama.h"
#include "parallel/executor/bucket_set.h"
#include "support/convert_model.h"
#include "support/golden_models.h"
#include "training/engine/load_states.h"
#include "training/engine/mesh_pieces.h"
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

// ---- The tool --------------------------------------------------------------------------------

namespace fs = std::filesystem;

fs::path step_of(const Config& config, int64_t step) {
  return fs::path(config.run.dir) / "checkpoints" / step_dir_name(step);
}

// As `tessera checkpoint reshard` does it.
void reshard_to(const fs::path& from, const fs::path& to, const MeshShape& mesh) {
  reshard_step(from, to, mesh, [&](const Manifest& manifest) -> PiecesOfRank {
    const auto pieces = std::make_shared<MeshPieces>(manifest, mesh);
    return [pieces](int rank) { return pieces->of_rank(rank); };
  });
}

// The bytes of all rank files, one after another.
std::vector<std::string> rank_files(const fs::path& step_dir) {
  std::vector<std::string> files;
  for (const ManifestFile& file : read_manifest(step_dir).files)
    files.push_back(read_small_file(step_dir / file.name, int64_t{1} << 30));
  return files;
}

MeshShape mesh_of(const Config& config) {
  return {config.parallel.dp_replicate, config.parallel.dp_shard, config.parallel.tp};
}

// What a run has saved is resharded to another mesh and back: the very same files.
void expect_the_files_of_the_run(const TemporaryFolder& folder, const Config& config,
                                 const MeshShape& other) {
  const fs::path step = step_of(config, config.training.steps);
  const fs::path there = folder / "there", back = folder / "back";
  for (const fs::path& old : {there, back}) fs::remove_all(old);
  reshard_to(step, there, other);
  EXPECT_EQ(read_manifest(there).files.size(), static_cast<size_t>(other.world()));
  EXPECT_TRUE(diff_steps(step, there).equal());
  reshard_to(there, back, mesh_of(config));
  EXPECT_EQ(rank_files(back), rank_files(step));
}

TEST(ReshardTool, WritesTheFilesThatARunOnThatMeshWrites) {
  const TemporaryFolder folder;
  int number = 0;
  for (const MeshShape& shape : {MeshShape{1, 1, 1}, MeshShape{1, 2, 2}, MeshShape{2, 2, 1},
                                 MeshShape{2, 1, 2}, MeshShape{1, 1, 4}}) {
    SCOPED_TRACE(fmt::format("{}x{}x{}", shape.dp_replicate, shape.dp_shard, shape.tp));
    Config config = tiny_config(folder, "run" + std::to_string(++number));
    sizes(config).num_key_value_heads = 2;  // held by two ranks each at tp 4
    sizes(config).vocab_size = 67;          // in uneven parts
    sizes(config).tie_word_embeddings = number % 2 == 0;
    config.training.steps = 1;
    config.parallel.tp = shape.tp;
    config.parallel.dp_shard = shape.dp_shard;
    config.parallel.dp_replicate = shape.dp_replicate;
    config.parallel.zero = number % 4;
    run(config);
    expect_the_files_of_the_run(folder, config, {1, 3, 2});
  }
}

// Both have buckets of their own.
TEST(ReshardTool, FrozenParametersAndThoseKeptInFp32) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.training.steps = 1;
  config.parallel.dp_shard = 2;
  config.parallel.tp = 2;
  config.precision.params = ParamsDtype::kBf16;
  config.precision.keep_fp32 = {"*norm*"};
  ParameterGroup frozen;
  frozen.params = {"*embed_tokens*", "*layers.0.mlp.down_proj*"};
  frozen.frozen = true;
  config.optimizer.groups = {frozen};
  run(config);
  expect_the_files_of_the_run(folder, config, {2, 1, 1});
}

// Every family of models, from the weights of its Hugging Face files.
TEST(ReshardTool, ModelsOfEveryFamily) {
  for (const GoldenModel& golden : kGoldenHfModels) {
    SCOPED_TRACE(golden.folder);
    const TemporaryFolder folder;
    const fs::path hf = folder / "hf", step = folder / "step";
    fs::create_directory(hf);
    auto json = nlohmann::json::parse(read_small_file(golden.path() / "config.json", 1 << 20));
    json["model_type"] = golden.type;
    write_file_atomic(hf / "config.json", json.dump());
    fs::copy_file(golden.path() / golden.weights, hf / "model.safetensors");
    import_folder(hf, step);
    for (const MeshShape& mesh : {MeshShape{1, 3, 1}, MeshShape{2, 2, 2}}) {
      const fs::path out = folder / std::to_string(mesh.tp);
      reshard_to(step, out, mesh);
      EXPECT_TRUE(diff_steps(step, out).equal());
    }
  }
}

TEST(ReshardTool, AMeshThatDoesNotFitTheModel) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.training.steps = 1;
  run(config);
  try {
    reshard_to(step_of(config, 1), folder / "out", {1, 1, 3});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("for this model these work: 1, 2, 4, 8"),
              std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(fs::exists(folder / "out"));
}

}  // namespace
}  // namespace tessera
