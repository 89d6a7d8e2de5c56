// The real binary on real processes: ten steps of the small model under mpirun on every mesh give
// the numbers of one process (parity_test does the same on thread ranks, with more variants).
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/save.h"
#include "support/folders.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

// As in parity_test: fp32 sums in another order.
constexpr double kMetricTolerance = 1e-5;
constexpr double kWeightTolerance = 2e-5;
constexpr int64_t kSteps = 10;

struct Result {
  TinyRun run;
  std::map<std::string, std::vector<double>> states;
};

class MpiParity : public testing::Test {
 protected:
  Config mesh(int dp, int tp, const std::string& name) {
    Config config = tiny_config(folder_, name);
    config.parallel.dp_shard = dp;
    config.parallel.tp = tp;
    return config;
  }

  // Trains with the binary, on dp_shard x tp processes; without mpirun where that is one.
  void train(const Config& config, Result& result) {
    const std::string file = config.run.dir + ".yaml";
    std::ofstream(file) << to_yaml(config);
    const int ranks = config.parallel.dp_replicate * config.parallel.dp_shard * config.parallel.tp;
    std::string command = "OMP_NUM_THREADS=1 ";
    if (ranks > 1)
      command += TESSERA_MPIRUN " --allow-run-as-root --oversubscribe --bind-to none -n " +
                 std::to_string(ranks);
    command += " '" TESSERA_BINARY_DIR "/tessera' train '" + file + "'";
    const std::string log = config.run.dir + ".log";
    const int status = std::system((command + " >'" + log + "' 2>&1").c_str());
    std::ostringstream output;
    output << std::ifstream(log).rdbuf();
    ASSERT_EQ(status, 0) << command << "\n" << output.str();
    read_metrics(config, result.run);
    ASSERT_EQ(result.run.steps.size(), static_cast<size_t>(kSteps));
    result.states = read_states(config, kSteps);
  }

  TemporaryFolder folder_;

 private:
  static void read_metrics(const Config& config, TinyRun& run) {
    std::ifstream in(std::filesystem::path(config.run.dir) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
      if (auto json = nlohmann::json::parse(line); json.contains("loss"))
        run.steps.push_back(std::move(json));
  }
};

TEST_F(MpiParity, EveryMeshEqualsOneProcess) {
  Result one;
  ASSERT_NO_FATAL_FAILURE(train(mesh(1, 1, "one"), one));
  EXPECT_LT(one.run.steps.back().at("loss").get<double>(),
            one.run.steps.front().at("loss").get<double>());
  const std::pair<int, int> meshes[] = {{2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {3, 1}};
  for (const auto& [dp, tp] : meshes) {
    const std::string name = "dp" + std::to_string(dp) + "_tp" + std::to_string(tp);
    SCOPED_TRACE(name);
    Result result;
    ASSERT_NO_FATAL_FAILURE(train(mesh(dp, tp, name), result));
    expect_close(result.run, one.run, kMetricTolerance);
    expect_weights_close(result.states, one.states, kSteps, kWeightTolerance);
  }
}

// A diagonal of the grid that thread ranks run whole (grid_test).
TEST_F(MpiParity, EveryStageOfZeroAndHsdpEqualOneProcess) {
  Result one;
  ASSERT_NO_FATAL_FAILURE(train(mesh(1, 1, "one"), one));
  struct Layout {
    int replicate, shard, tp, zero;
    int64_t micro_batch;
    Recompute recompute;
  };
  const Layout layouts[] = {{1, 2, 1, 0, 8, Recompute::kNone}, {2, 1, 2, 0, 2, Recompute::kFull},
                            {1, 2, 2, 1, 8, Recompute::kNone}, {2, 2, 1, 1, 2, Recompute::kFull},
                            {1, 4, 1, 2, 2, Recompute::kNone}, {2, 2, 2, 2, 4, Recompute::kFull},
                            {2, 2, 1, 3, 4, Recompute::kNone}, {2, 2, 2, 3, 2, Recompute::kNone}};
  for (const Layout& layout : layouts) {
    const std::string name = std::to_string(layout.replicate) + std::to_string(layout.shard) +
                             std::to_string(layout.tp) + "_zero" + std::to_string(layout.zero);
    SCOPED_TRACE(name);
    Config config = mesh(layout.shard, layout.tp, name);
    config.parallel.dp_replicate = layout.replicate;
    config.parallel.zero = layout.zero;
    config.training.micro_batch_size = layout.micro_batch;
    config.memory.recompute = layout.recompute;
    config.debug.check_collectives = true;
    Result result;
    ASSERT_NO_FATAL_FAILURE(train(config, result));
    expect_close(result.run, one.run, kMetricTolerance);
    expect_weights_close(result.states, one.states, kSteps, kWeightTolerance);
  }
}

// Sums have one order, whatever carries the tensors.
TEST_F(MpiParity, MessagesAndChecksChangeNoBit) {
  Result shared;
  ASSERT_NO_FATAL_FAILURE(train(mesh(2, 2, "shared"), shared));

  Config config = mesh(2, 2, "messages");
  config.communication.shared_memory = false;
  Result messages;
  ASSERT_NO_FATAL_FAILURE(train(config, messages));
  expect_identical(messages.run, shared.run);
  EXPECT_EQ(messages.states, shared.states);

  config = mesh(2, 2, "checked");
  config.debug.check_collectives = true;
  Result checked;
  ASSERT_NO_FATAL_FAILURE(train(config, checked));
  expect_identical(checked.run, shared.run);
  EXPECT_EQ(checked.states, shared.states);
}

}  // namespace
}  // namespace tessera
