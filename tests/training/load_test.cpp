// Loading a checkpoint: how often files are opened and bytes are read, and what happens when the
// load finds damage.
#include <mutex>

#include "base/error.h"
#include "base/files/files.h"
#include "models/llama/llama.h"
#include "parallel/executor/bucket_set.h"
#include "support/error_of.h"
#include "training/engine/load_states.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

fs::path checkpoints_of(const Config& config) {
  return fs::path(config.run.dir) / "checkpoints";
}

fs::path step_of(const Config& config, int64_t step) {
  return checkpoints_of(config) / step_dir_name(step);
}

std::string log_of(const Config& config) {
  return read_small_file(fs::path(config.run.dir) / "logs/train.log", 1 << 20);
}

// ---- How much is read ------------------------------------------------------------------------

struct Reads {
  int64_t opens = 0, bytes = 0;  // of all ranks
};

// Loads every state of `from` on a mesh.
Reads load(const Config& config, MeshShape shape, int zero, const fs::path& from) {
  Reads all;
  std::mutex mutex;
  run_thread_ranks(shape.world(), [&](Communicator& world) {
    Mesh mesh(shape, world.split(0, world.rank(), "world"));
    const auto owned = config.model->make_stages(config.data.seq_len, mesh, {});
    std::vector<Stage*> stages;
    for (const auto& stage : owned) stages.push_back(stage.get());
    const BucketSet set = make_buckets(stages, mesh, {.zero = zero});
    CheckpointReader reader(from);
    load_states(set.pointers(), mesh, {kStateParam, kStateExpAvg, kStateExpAvgSq}, reader);
    const std::lock_guard lock(mutex);
    all.opens += reader.blocks().files_opened();
    all.bytes += reader.blocks().bytes_read();
  });
  return all;
}

int64_t stored_bytes(const fs::path& step) {
  const auto checkpoint = StoredCheckpoint::open(step);
  int64_t bytes = 0;
  for (const StoredPiece& piece : checkpoint->index().pieces()) bytes += piece.bytes();
  return bytes;
}

TEST(Load, EachByteIsReadOnceOnANode) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.training.steps = 1;
  config.parallel.dp_shard = 4;
  run(config);
  const fs::path step = step_of(config, 1);
  const int64_t bytes = stored_bytes(step);
  ASSERT_GT(bytes, 100'000);
  // Every rank its own file; at zero 0 too, where each then hands its part to the others.
  for (const int zero : {3, 0}) {
    const Reads reads = load(config, {1, 4, 1}, zero, step);
    EXPECT_EQ(reads.bytes, bytes) << "zero " << zero;
    EXPECT_EQ(reads.opens, 4) << "zero " << zero;
  }
  EXPECT_EQ(load(config, {1, 1, 1}, 3, step).bytes, bytes);
  // Other meshes pad otherwise, so that readers share the blocks in which their parts meet: of so
  // small a model whole pieces. Without handing over, these would read 2, 4 and 8 times as much.
  for (const auto& [shape, zero] :
       {std::pair{MeshShape{2, 2, 1}, 3}, {MeshShape{4, 1, 1}, 1}, {MeshShape{1, 8, 1}, 0}}) {
    const Reads reads = load(config, shape, zero, step);
    EXPECT_LT(reads.bytes, 2 * bytes) << shape.world() << " ranks";
    EXPECT_LE(reads.opens, 2 * shape.world());
  }
}

// ---- Damage ----------------------------------------------------------------------------------

// Changes a byte of the weights in a rank's file.
void damage(const fs::path& step, int rank = 0) {
  const auto checkpoint = StoredCheckpoint::open(step);
  for (const StoredPiece& piece : checkpoint->index().pieces()) {
    if (piece.file != rank || piece.state != 0) continue;
    std::fstream file(checkpoint->file(rank), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(piece.offset + piece.bytes() / 2);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(piece.offset + piece.bytes() / 2);
    file.put(byte);
    return;
  }
}

// Ten steps on two ranks with a checkpoint every two, stopped after step `stop`.
Config run_to(const TemporaryFolder& folder, const std::string& name, std::optional<int64_t> stop) {
  Config config = tiny_config(folder, name);
  config.checkpoint.every = 2;
  config.checkpoint.keep = 0;
  config.parallel.dp_shard = 2;
  config.training.stop_after = stop;
  run(config);
  config.training.stop_after.reset();
  return config;
}

TEST(Load, DamagedDataOfTheNewestMakeARunGoOnFromTheOneBefore) {
  const TemporaryFolder folder;
  const Config whole = run_to(folder, "whole", std::nullopt);
  Config config = run_to(folder, "run", 8);
  damage(step_of(config, 8), 1);
  damage(step_of(config, 6), 0);
  const TinyRun resumed = run(config);
  ASSERT_EQ(resumed.steps.size(), 10U);
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_EQ(resumed.steps[static_cast<size_t>(step)].at("step"), step + 1);
  EXPECT_EQ(read_states(config, 10), read_states(whole, 10));
  for (const int64_t step : {6, 8}) {
    EXPECT_TRUE(fs::exists(step_of(config, step).string() + ".broken"));
    EXPECT_NE(log_of(config).find(step_dir_name(step) + " is broken: "), std::string::npos);
  }
  EXPECT_NE(log_of(config).find("rank-00001.safetensors: piece '"), std::string::npos);
  EXPECT_NE(log_of(config).find("resuming from " + step_of(config, 4).string()), std::string::npos);
}

TEST(Load, NoWholeCheckpointIsAnErrorAndNeverAFreshStart) {
  const TemporaryFolder folder;
  Config config = run_to(folder, "run", 4);
  damage(step_of(config, 2));
  damage(step_of(config, 4));
  for (int i = 0; i < 2; ++i) {
    const std::string error = error_of([&] { run(config); });
    EXPECT_NE(error.find("none is whole (2 set aside"), std::string::npos) << error;
  }
}

TEST(Load, ADamagedPathIsAnErrorAndIsNotMoved) {
  const TemporaryFolder folder;
  const Config source = run_to(folder, "source", 4);
  damage(step_of(source, 4), 1);
  Config config = tiny_config(folder, "second");
  config.parallel.dp_shard = 2;
  config.checkpoint.resume = step_of(source, 4);
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("rank-00001.safetensors: piece '"), std::string::npos) << error;
  EXPECT_TRUE(fs::exists(step_of(source, 4)));
  config.checkpoint.resume = "auto";
  config.checkpoint.init_from = step_of(source, 4);
  EXPECT_NE(error_of([&] { run(config); }).find("piece '"), std::string::npos);
  EXPECT_TRUE(fs::exists(step_of(source, 4)));
}

// Nothing is loaded then, but what a later start needs is looked at.
TEST(Load, ACompleteRunLooksAtItsNewestCheckpoint) {
  const TemporaryFolder folder;
  const Config whole = run_to(folder, "whole", std::nullopt);
  Config config = run_to(folder, "run", std::nullopt);
  EXPECT_EQ(run(config).steps.size(), 10U);
  EXPECT_NE(log_of(config).find("the run is complete"), std::string::npos);
  damage(step_of(config, 10));
  EXPECT_EQ(run(config).steps.size(), 10U);
  EXPECT_TRUE(fs::exists(step_of(config, 10).string() + ".broken"));
  EXPECT_EQ(read_states(config, 10), read_states(whole, 10));  // the last steps were made again
}

TEST(Load, ARollbackPassesOverDamagedCheckpoints) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.checkpoint.every = 2;
  config.checkpoint.keep = 0;
  config.parallel.dp_shard = 2;
  config.training.on_nonfinite = OnNonfinite::kRollback;
  const auto failed = std::make_shared<std::vector<bool>>(2, false);
  const TinyRun trained = run(config, {[&, failed](int64_t step, Mesh& mesh, const auto& buckets) {
                                const auto rank = static_cast<size_t>(mesh.world().rank());
                                if (step != 8 || (*failed)[rank]) return;
                                (*failed)[rank] = true;
                                if (rank != 1) return;
                                damage(step_of(config, 6), 1);
                                for (FlatBucket* bucket : buckets)
                                  bucket->grad().fill_(std::numeric_limits<double>::quiet_NaN());
                              }});
  ASSERT_EQ(trained.events.size(), 1U);
  EXPECT_TRUE(fs::exists(step_of(config, 6).string() + ".broken"));
  EXPECT_NE(log_of(config).find("Going back to " + step_of(config, 4).string()), std::string::npos);
  EXPECT_EQ(trained.outcome, TrainOutcome::kDone);
}

}  // namespace
}  // namespace tessera
