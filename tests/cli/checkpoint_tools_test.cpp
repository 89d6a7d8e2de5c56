// `tessera checkpoint ...` from outside, on the checkpoints of a real run.

#include <nlohmann/json.hpp>

#include "cli_testing.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::count;
using testing::read_file;
using testing::Result;
using testing::run;

// A run of two steps, made once.
class CheckpointTools : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = new TemporaryFolder();
    std::ofstream(*made_ / "text") << std::string(4000, 'x');
    std::ofstream(*made_ / "c.yaml") << R"(
run: {dir: run, seed: 3}
model: {type: llama, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
        num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256}
data: {train: [tokens], seq_len: 16}
training: {steps: 3, global_batch_size: 4}
schedule: {warmup_steps: 0}
checkpoint: {every: 1, keep: 0}
)";
    ASSERT_EQ(run(*made_, "data pack text --out tokens").exit_code, 0);
    const Result trained = run(*made_, "train c.yaml --set training.stop_after=2");
    ASSERT_EQ(trained.exit_code, 3) << trained.err;
  }
  static void TearDownTestSuite() {
    delete made_;
    made_ = nullptr;
  }

  // A copy of the run's folder, for this test alone.
  void SetUp() override { fs::copy(made_->path(), folder_.path(), fs::copy_options::recursive); }

  Result tool(const std::string& arguments) { return run(folder_, "checkpoint " + arguments); }
  void expect_done(const std::string& arguments, const std::string& out = "") {
    const Result result = tool(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments << ": " << result.err;
    EXPECT_EQ(result.err, "") << "stderr is no terminal, so no bar";
    if (!out.empty()) {
      EXPECT_EQ(result.out, out);
    }
  }
  void expect_refused(const std::string& arguments, const std::string& why, int code = 2) {
    const Result result = tool(arguments);
    EXPECT_EQ(result.exit_code, code) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_HAS(result.err, why);
  }
  void flip_last_byte(const fs::path& file) {
    std::string text = read_file(folder_.path() / file);
    text.back() ^= 1;
    std::ofstream(folder_.path() / file, std::ios::binary) << text;
  }

  static TemporaryFolder* made_;
  TemporaryFolder folder_;
  const std::string one_ = "run/checkpoints/step-00000001", two_ = "run/checkpoints/step-00000002";
};

TemporaryFolder* CheckpointTools::made_ = nullptr;

TEST_F(CheckpointTools, List) {
  const json listed = json::parse(tool("list run --json").out);
  EXPECT_EQ(listed["newest"], 2);
  EXPECT_EQ(listed["steps"].size(), 2u);
  EXPECT_EQ(listed["steps"][0]["state"], "whole");
  EXPECT_HAS(tool("list run").out, "whole, the newest\n");
  expect_refused("list " + one_, "is a step folder, and a run folder is wanted");
}

TEST_F(CheckpointTools, Inspect) {
  const json found = json::parse(tool("inspect " + two_ + " --json").out);
  EXPECT_EQ(found["step"], 2);
  EXPECT_EQ(found["mesh"], (json{{"dp_replicate", 1}, {"dp_shard", 1}, {"tp", 1}}));
  EXPECT_HAS(tool("inspect " + two_).out, "step        2\n");
}

TEST_F(CheckpointTools, Verify) {
  expect_done("verify " + two_ + " --threads 3", two_ + ": every checksum is right\n");
  flip_last_byte(two_ + "/rank-00000.safetensors");
  expect_refused("verify " + two_, "rank-00000.safetensors: piece '");
}

TEST_F(CheckpointTools, Diff) {
  Result result = tool("diff " + one_ + " " + two_ + " --json");
  EXPECT_EQ(result.exit_code, 1);
  json found = json::parse(result.out);
  EXPECT_EQ(found["equal"], false);
  EXPECT_GT(found["states"][0]["max"], 0);
  result = tool("diff " + two_ + " " + two_ + "/ --json --threads 2");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["equal"], true);
  EXPECT_HAS(tool("diff " + two_ + " " + two_).out, "states that both have are equal\n");
  flip_last_byte(one_ + "/rank-00000.safetensors");
  expect_refused("diff " + one_ + " " + two_, "checksum");
  // Whatever fails is 2, since 1 says that they differ.
  fs::remove(folder_.path() / one_ / "manifest.json");
  fs::create_symlink("manifest.json", folder_.path() / one_ / "manifest.json");
  EXPECT_EQ(tool("diff " + two_ + " " + one_).exit_code, 2);
}

TEST_F(CheckpointTools, ConsolidateAndImport) {
  expect_done("consolidate " + two_ + " out --with-optimizer --max-shard-size 20KB --threads 3",
              "wrote out\n");
  EXPECT_TRUE(fs::exists(folder_ / "out/training_state/state.safetensors.index.json"));
  const json state = json::parse(read_file(folder_ / "out/training_state/state.json"));
  EXPECT_EQ(state["step"], 2);
  expect_refused("consolidate " + one_ + " out", "--force replaces");
  expect_done("consolidate " + one_ + " out --force", "wrote out\n");
  EXPECT_FALSE(fs::exists(folder_ / "out/training_state"));
  expect_done("import out step");
  expect_refused("import out step", "--force replaces");
  expect_refused("import out run --force", "is not replaced");
  expect_refused("import out out --force", "is read");
  expect_done("import out step --force --threads 2");
  EXPECT_EQ(tool("consolidate step again --with-optimizer").exit_code, 2);
  const Result same = tool("diff step " + one_);  // the weights are, the moments are only in one
  EXPECT_EQ(same.exit_code, 1);
  EXPECT_EQ(count(same.out, "/exp_avg\n"), count(same.out, "/exp_avg_sq\n"));
  EXPECT_EQ(count(same.out, " elements differ"), 0) << same.out;
}

// What a reshard wrote is a checkpoint as any other: training goes on from it on yet another mesh.
TEST_F(CheckpointTools, Reshard) {
  expect_done("reshard " + two_ + " new/checkpoints/step-00000002 --mesh 2x2x2",
              "wrote new/checkpoints/step-00000002\n");
  const json found = json::parse(tool("inspect new/checkpoints/step-00000002 --json").out);
  EXPECT_EQ(found["files"].size(), 8u);
  EXPECT_EQ(found["mesh"], (json{{"dp_replicate", 2}, {"dp_shard", 2}, {"tp", 2}}));
  EXPECT_EQ(tool("diff new/checkpoints/step-00000002 " + two_).exit_code, 0);
  const Result plain = run(folder_, "train c.yaml");
  const Result resharded = run(folder_, "train c.yaml --set run.dir=new");
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(resharded.exit_code, 0) << resharded.err;
  EXPECT_EQ(tool("diff run/checkpoints/step-00000003 new/checkpoints/step-00000003").exit_code, 0);

  for (const char* mesh :
       {"1x2", "1x2x2x2", "axbxc", "1x0x1", "1x-1x1", "1x1x1 ", "99999999999x1x1"})
    expect_refused("reshard " + two_ + " out --mesh '" + mesh + "'", "such as 1x4x2");
  expect_refused("reshard " + two_ + " out --mesh 1x1x3", "for this model these work: 1, 2, 4");
  expect_refused("reshard " + two_ + " out --mesh 1000x1000x1", "at most 65536 ranks");
  expect_refused("reshard " + two_ + " " + one_ + " --mesh 1x1x1", "--force replaces");
  expect_done("reshard " + two_ + " " + one_ + " --mesh 1x2x1 --force");
}

TEST_F(CheckpointTools, Average) {
  expect_done("average " + one_ + " " + two_ + " --out mean", "wrote mean\n");
  EXPECT_EQ(json::parse(tool("inspect mean --json").out)["states"], json{"param"});
  expect_refused("average " + one_ + " --out other", "two or more");
  const Result started =
      run(folder_, "train c.yaml --set run.dir=next --set checkpoint.init_from=mean");
  EXPECT_EQ(started.exit_code, 0) << started.err;
  EXPECT_HAS(started.out, "starting at step 0 with the weights of mean");
  expect_done("consolidate mean out");
  expect_done("average " + one_ + " " + two_ + " mean --out mean2");
  expect_refused("average " + one_ + " mean --out mean --force", "is read");
}

}  // namespace
}  // namespace tessera
