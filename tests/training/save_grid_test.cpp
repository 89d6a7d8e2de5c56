// Saves of the real train() on every kind of layout and stage of ZeRO, beside training and not:
// what is in the checkpoint, and in the files that are made of it, is the same to the last bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files/files.h"
#include "checkpoint/huggingface/consolidate.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Layout {
  int dp_replicate, dp_shard, tp;
  std::string text() const { return fmt::format("{}x{}x{}", dp_replicate, dp_shard, tp); }
};

// In a cycle: each goes on from a checkpoint of the one before.
const std::vector<Layout> kCycle = {{1, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 2, 2},
                                    {1, 4, 1}, {1, 1, 4}, {2, 2, 1}, {1, 1, 1}};
constexpr int64_t kSteps = 3;  // of each run, so that a save has a step beside it

Config config_on(const TemporaryFolder& folder, const std::string& name, const Layout& layout,
                 int zero, bool async) {
  Config config = tiny_config(folder, name);
  config.parallel.dp_replicate = layout.dp_replicate;
  config.parallel.dp_shard = layout.dp_shard;
  config.parallel.tp = layout.tp;
  config.parallel.zero = zero;
  // Without accumulation all stages of ZeRO have one order of sums.
  config.training.micro_batch_size = 16 / (layout.dp_replicate * layout.dp_shard);
  config.schedule.steps = 100;
  config.checkpoint.every = 1;
  config.checkpoint.async = async;
  return config;
}

fs::path step_dir(const Config& config, int64_t step) {
  return fs::path(config.run.dir) / "checkpoints" / step_dir_name(step);
}

// The bytes of the consolidated files by name, without their configuration.
std::map<std::string, std::string> consolidated(const Config& config, int64_t step) {
  const fs::path out = fs::path(config.run.dir) / fmt::format("consolidated-{}", step);
  consolidate(step_dir(config, step), out, {});
  std::map<std::string, std::string> files;
  for (const auto& file : fs::directory_iterator(out))
    if (file.path().extension() == ".safetensors")
      files[file.path().filename()] = read_small_file(file.path(), 1 << 24);
  return files;
}

struct Saved {
  TinyRun run;
  std::map<std::string, std::vector<double>> states;
  std::map<std::string, std::string> files;
};

// What a run of kSteps saved after each of them.
std::vector<Saved> saves_of(const Config& config, int64_t begin) {
  const TinyRun trained = run(config);
  std::vector<Saved> saved;
  for (int64_t step = begin + 1; step <= begin + kSteps; ++step)
    saved.push_back({trained, read_states(config, step), consolidated(config, step)});
  return saved;
}

TEST(SaveGrid, EveryLayoutStageOfZeroAndWayOfSavingGiveTheSameBits) {
  TemporaryFolder folder;
  fs::path from;
  int64_t begin = 0;
  for (size_t i = 0; i < kCycle.size(); ++i) {
    std::vector<Saved> first;
    Config config;
    for (const int zero : {3, 2, 0}) {
      for (const bool async : {false, true}) {
        const std::string name =
            fmt::format("{}-{}-zero-{}{}", i, kCycle[i].text(), zero, async ? "-async" : "");
        SCOPED_TRACE(name);
        config = config_on(folder, name, kCycle[i], zero, async);
        config.training.steps = begin + kSteps;
        if (!from.empty()) config.checkpoint.resume = from;
        const std::vector<Saved> saved = saves_of(config, begin);
        if (first.empty()) first = saved;
        expect_identical(saved.back().run, first.back().run);
        for (size_t step = 0; step < kSteps; ++step) {
          EXPECT_EQ(saved[step].states, first[step].states) << "step " << begin + 1 + step;
          EXPECT_EQ(saved[step].files, first[step].files) << "step " << begin + 1 + step;
          ASSERT_FALSE(saved[step].files.empty());
        }
        if (HasFailure()) return;
      }
    }
    begin += kSteps;
    from = step_dir(config, begin);  // saved beside training, at zero 0
  }
}

}  // namespace
}  // namespace tessera
