// The whole path, by the real binary and under mpirun, against what PyTorch 2.11 and transformers
// made of the same weights and samples (data/, written by make_golden.py): import a Hugging Face
// folder, train it at tp 2 x dp 2, consolidate; every loss, gradient norm, learning rate and weight
// is compared.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "support/folders.h"
#include "support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tessera::TemporaryFolder;

const fs::path kData = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/data";
const fs::path kBinary = fs::path(TESSERA_BINARY_DIR) / "tessera";
const std::string kMpirun =
    TESSERA_MPIRUN " --allow-run-as-root --oversubscribe --bind-to none -n 4 ";

// fp32 sums in another order, 20 AdamW steps long (tests/peers has the same limit).
constexpr double kTolerance = 1e-4;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path << " cannot be read";
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

using Tensors = std::map<std::string, std::vector<float>>;

// A reader of its own, so that a fault of checkpoint/safetensors cannot hide itself here.
Tensors read_safetensors(const fs::path& path) {
  const std::string bytes = read_text(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const json header = json::parse(bytes.substr(8, header_size));
  Tensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(entry.at("dtype"), "F32") << name;
    const auto begin = entry.at("data_offsets").at(0).get<uint64_t>();
    const auto end = entry.at("data_offsets").at(1).get<uint64_t>();
    std::vector<float> values((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + 8 + header_size + begin, end - begin);
    tensors[name] = std::move(values);
  }
  return tensors;
}

double relative(double value, double reference) {
  return std::abs(value - reference) / std::abs(reference);
}

// |difference| / max(|w|, lr * steps * sqrt(n)), norms of a whole tensor: AdamW moves an element by
// about lr whatever its gradient's size, so one whose gradient is zero in exact arithmetic goes
// either way.
double weight_distance(const std::vector<float>& value, const std::vector<float>& reference,
                       double lr, double steps) {
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < reference.size(); ++i) {
    difference += std::pow(static_cast<double>(value[i]) - reference[i], 2);
    norm += std::pow(static_cast<double>(reference[i]), 2);
  }
  const double moved = lr * steps * std::sqrt(static_cast<double>(reference.size()));
  return std::sqrt(difference) / std::max(std::sqrt(norm), moved);
}

class GoldenTest : public testing::Test {
 protected:
  void SetUp() override { expected_ = json::parse(read_text(kData / "expected.json")); }

  // Runs a command; where it fails, its output becomes the test's message.
  void run(const std::string& command) const {
    const fs::path log = folder_ / "output.txt";
    const int status = std::system((command + " >'" + log.string() + "' 2>&1").c_str());
    ASSERT_EQ(status, 0) << command << "\n" << read_text(log);
  }

  fs::path write_config(const fs::path& step_dir) const {
    const json& optimizer = expected_.at("optimizer");
    const json config = {
        {"run", {{"dir", (folder_ / "run").string()}, {"seed", 1}}},
        {"model", {{"config", (kData / "model/config.json").string()}}},
        {"parallel", {{"tp", 2}, {"dp_shard", 2}, {"dp_replicate", 1}, {"zero", 3}}},
        {"precision", {{"params", "fp32"}, {"reduce", "fp32"}}},
        {"data",
         {{"train", json::array({(kData / "tokens").string()})},
          {"seq_len", expected_.at("seq_len")}}},
        {"training",
         {{"steps", expected_.at("steps")},
          {"global_batch_size", expected_.at("samples")},
          {"micro_batch_size", 2},
          {"clip_grad_norm", optimizer.at("clip_grad_norm")},
          {"log_samples", true}}},
        {"optimizer",
         {{"type", "adamw"},
          {"lr", optimizer.at("lr")},
          {"betas", optimizer.at("betas")},
          {"eps", optimizer.at("eps")},
          {"weight_decay", optimizer.at("weight_decay")}}},
        {"schedule", expected_.at("schedule")},
        {"checkpoint", {{"resume", "none"}, {"init_from", step_dir.string()}}},
    };
    const fs::path path = folder_ / "config.yaml";
    std::ofstream(path) << config.dump(1);  // JSON is YAML
    return path;
  }

  std::vector<json> read_metrics() const {
    std::istringstream lines(read_text(folder_ / "run/metrics.jsonl"));
    std::vector<json> steps;
    for (std::string line; std::getline(lines, line);) {
      json entry = json::parse(line);
      if (entry.contains("loss")) steps.push_back(std::move(entry));
    }
    return steps;
  }

  void expect_curve(const std::vector<json>& metrics) const {
    const auto steps = expected_.at("steps").get<size_t>();
    ASSERT_EQ(metrics.size(), steps);
    std::vector<int64_t> all(expected_.at("samples").get<size_t>());
    std::iota(all.begin(), all.end(), 0);
    for (size_t i = 0; i < steps; ++i) {
      SCOPED_TRACE("step " + std::to_string(i + 1));
      const json& line = metrics[i];
      auto samples = line.at("samples").get<std::vector<int64_t>>();
      std::sort(samples.begin(), samples.end());
      EXPECT_EQ(samples, all);  // the batch is the whole data set, every epoch in another order
      EXPECT_EQ(line.at("step"), i + 1);
      EXPECT_LE(relative(line.at("lr"), expected_.at("lr").at(i)), 1e-12);
      EXPECT_LE(relative(line.at("loss"), expected_.at("loss").at(i)), kTolerance);
      EXPECT_LE(relative(line.at("grad_norm"), expected_.at("grad_norm").at(i)), kTolerance);
    }
  }

  void expect_weights(const Tensors& weights) const {
    const Tensors golden = read_safetensors(kData / "final.safetensors");
    ASSERT_EQ(weights.size(), golden.size());
    for (const auto& [name, reference] : golden) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(weights.contains(name));
      ASSERT_EQ(weights.at(name).size(), reference.size());
      const double lr = expected_.at("optimizer").at("lr");
      EXPECT_LE(weight_distance(weights.at(name), reference, lr, expected_.at("steps")),
                kTolerance);
    }
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  json expected_;
};

TEST_F(GoldenTest, ImportedModelTrainsAndExportsAsInPyTorch) {
  const std::string tessera = "'" + kBinary.string() + "' ";
  const fs::path imported = folder_ / "imported";
  const fs::path exported = folder_ / "exported";
  ASSERT_NO_FATAL_FAILURE(run(tessera + "checkpoint import '" + (kData / "model").string() + "' '" +
                              imported.string() + "'"));
  ASSERT_NO_FATAL_FAILURE(
      run(kMpirun + tessera + "train '" + write_config(imported).string() + "'"));
  expect_curve(read_metrics());
  ASSERT_NO_FATAL_FAILURE(run(tessera + "checkpoint consolidate '" +
                              (folder_ / "run/checkpoints/step-00000020").string() + "' '" +
                              exported.string() + "'"));
  expect_weights(read_safetensors(exported / "model.safetensors"));
}

TEST_F(GoldenTest, ImportAndExportKeepEveryBit) {
  const std::string tessera = "'" + kBinary.string() + "' ";
  const fs::path imported = folder_ / "imported";
  const fs::path exported = folder_ / "exported";
  ASSERT_NO_FATAL_FAILURE(run(tessera + "checkpoint import '" + (kData / "model").string() + "' '" +
                              imported.string() + "'"));
  ASSERT_NO_FATAL_FAILURE(run(tessera + "checkpoint consolidate '" + imported.string() + "' '" +
                              exported.string() + "'"));
  EXPECT_EQ(read_safetensors(exported / "model.safetensors"),
            read_safetensors(kData / "model/model.safetensors"));
}

}  // namespace
