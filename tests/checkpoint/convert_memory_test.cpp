#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "checkpoint/huggingface/consolidate.h"
#include "checkpoint_testing.h"

namespace tessera::testing {
namespace {

constexpr int64_t kMegabyte = 1'000'000;
constexpr int64_t kRows = 12800, kColumns = 1024,
                  kLayers = 2;  // 52 MB a large matrix, 450 MB in all

struct Outcome {
  int status = 0;
  int64_t peak_bytes = 0;
  std::string log;
};

// Runs the program itself: what it links counts as well. `log` takes what it prints. The peak holds
// what this process had in memory at the fork too (Linux keeps it over exec), so that must be
// little.
Outcome run_tessera(std::vector<std::string> arguments, const fs::path& log) {
  arguments.insert(arguments.begin(), TESSERA_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Outcome outcome;
  rusage usage{};
  if (child < 0 || wait4(child, &outcome.status, 0, &usage) != child) outcome.status = -1;
  outcome.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  outcome.log = slurp(log);
  return outcome;
}

// Every tensor of a Llama whose large matrices are all kRows x kColumns.
std::vector<TensorInfo> llama_tensors() {
  std::vector<TensorInfo> tensors{{"model.embed_tokens.weight", {kRows, kColumns}},
                                  {"model.norm.weight", {kColumns}},
                                  {"lm_head.weight", {kRows, kColumns}}};
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      tensors.push_back({prefix + norm + ".weight", {kColumns}});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      tensors.push_back({prefix + "self_attn." + name + ".weight", {kColumns, kColumns}});
    for (const char* name : {"gate_proj", "up_proj"})
      tensors.push_back({prefix + "mlp." + name + ".weight", {kRows, kColumns}});
    tensors.push_back({prefix + "mlp.down_proj.weight", {kColumns, kRows}});
  }
  return tensors;
}

// Two ranks' files, so that no tensor lies in one piece.
void save_large(const fs::path& dir) {
  run_thread_ranks(2, [&](Communicator& world) {
    std::vector<float> values(static_cast<size_t>(kRows * kColumns), 0.5f);
    Manifest manifest = test_manifest(1, {kStateParam});
    manifest.tensors = llama_tensors();
    manifest.model = {{"model_type", "llama"},      {"hidden_size", kColumns},
                      {"intermediate_size", kRows}, {"num_hidden_layers", kLayers},
                      {"num_attention_heads", 4},   {"vocab_size", kRows},
                      {"rms_norm_eps", 1e-5},       {"tie_word_embeddings", false}};
    std::vector<Piece> pieces;
    for (const TensorInfo& tensor : manifest.tensors) {
      Box box = whole_box(tensor.shape);
      box.shape[0] /= 2;
      box.offset[0] = world.rank() * box.shape[0];
      Piece piece{tensor.name, kStateParam, {box, 0, box.numel()}};
      piece.data = reinterpret_cast<std::byte*>(values.data());
      pieces.push_back(std::move(piece));
    }
    CheckpointManager(dir, 0, world, nullptr).save(manifest, pieces);
  });
}

class ConvertMemory : public Scratch {
 protected:
  void expect_bounded(const std::string& what, const Outcome& outcome) {
    ASSERT_TRUE(WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 0) << outcome.log;
    std::printf("%s: peak %lld MB\n", what.c_str(),
                static_cast<long long>(outcome.peak_bytes / kMegabyte));
    const int64_t largest = kRows * kColumns * 4;
    EXPECT_GT(outcome.peak_bytes, kMegabyte);  // it was measured at all
    EXPECT_LE(outcome.peak_bytes, largest + 200 * kMegabyte) << what;
  }

  fs::path log_ = dir_ / "log";
};

// A checkpoint of 450 MB goes through either way in the largest tensor and 200 MB, LibTorch
// included.
TEST_F(ConvertMemory, ConsolidateAndImportStayBelowTheLargestTensorAnd200MB) {
  save_large(dir_);
  const std::string step = dir_ / "step-00000001", hf = dir_ / "hf", back = dir_ / "back";
  expect_bounded("consolidate",
                 run_tessera({"checkpoint", "consolidate", step, hf, "--dtype", "bf16"}, log_));
  fs::remove_all(step);
  expect_bounded("import", run_tessera({"checkpoint", "import", hf, back}, log_));
  EXPECT_EQ(read_manifest(back).tensors.size(), llama_tensors().size());
}

// The others too, whatever the sizes of tensors and files, on four threads.
TEST_F(ConvertMemory, ToolsStayBelow300MB) {
  save_large(dir_);
  const std::string step = dir_ / "step-00000001", other = dir_ / "other", mean = dir_ / "mean";
  const std::vector<std::vector<std::string>> tools = {{"reshard", step, other, "--mesh", "1x3x2"},
                                                       {"verify", other},
                                                       {"diff", step, other},
                                                       {"average", step, other, "--out", mean}};
  for (std::vector<std::string> arguments : tools) {
    const std::string what = arguments[0];
    arguments.insert(arguments.begin(), "checkpoint");
    arguments.insert(arguments.end(), {"--threads", "4"});
    const Outcome outcome = run_tessera(arguments, log_);
    expect_bounded(what, outcome);
    EXPECT_LE(outcome.peak_bytes, 300 * kMegabyte) << what;
  }
}

}  // namespace
}  // namespace tessera::testing
