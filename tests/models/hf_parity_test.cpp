// Every model with a Hugging Face form against transformers (golden/make_models.py): probabilities
// and all gradients on the same weights, on 1, 2 and 4 ranks of tensor parallelism with and without
// sequence parallelism; and its files there and back, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text/json_text.h"
#include "models/registry.h"
#include "models/stage_chain.h"
#include "support/convert_model.h"
#include "support/folders.h"
#include "support/golden_models.h"
#include "support/read_tensors.h"
#include "support/read_weights.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// fp32 sums in another order; of the largest gradient's norm, since key biases have a gradient of
// zero in exact arithmetic.
constexpr double kTolerance = 1e-4;

const fs::path kFolder = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/models";

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_same_tensors(const fs::path& file, const fs::path& original) {
  const auto found = read_tensors(file), wanted = read_tensors(original);
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
  }
}

// One model's files, as parameters of ours: its weights, and the gradients that transformers found.
class Golden {
 public:
  explicit Golden(const std::string& name) : folder_(kFolder / name) {
    // The gradients are named and shaped as the weights are.
    const fs::path gradients = temporary_ / "gradients-hf";
    fs::create_directory(gradients);
    fs::copy_file(folder_ / "config.json", gradients / "config.json");
    fs::copy_file(folder_ / "gradients.safetensors", gradients / "model.safetensors");
    const fs::path weights = temporary_ / "weights-hf";
    fs::create_directory(weights);
    fs::copy_file(folder_ / "config.json", weights / "config.json");
    fs::copy_file(folder_ / "model.safetensors", weights / "model.safetensors");
    import_folder(weights, temporary_ / "weights");
    import_folder(gradients, temporary_ / "gradients");
  }

  AnyModel model() const { return read_hf_model(folder_ / "config.json"); }
  at::Tensor expected(const char* name) const {
    return read_tensors(folder_ / "expected.safetensors").at(name);
  }
  MicroBatch batch() const {
    const at::Tensor tokens = expected("tokens").to(at::kLong);
    MicroBatch batch;
    batch.tokens = tokens;
    batch.targets = expected("targets").to(at::kLong);
    batch.weights = at::full(tokens.sizes(), 1.0 / static_cast<double>(tokens.numel()), at::kFloat);
    return batch;
  }
  // Whole tensors of our names; `what`: weights or gradients.
  std::map<std::string, at::Tensor> tensors(const char* what) const {
    return read_weights(temporary_ / what);
  }
  fs::path step() const { return temporary_ / "weights"; }
  fs::path output() const { return temporary_ / "out"; }
  fs::path original() const { return folder_ / "model.safetensors"; }

 private:
  fs::path folder_;
  TemporaryFolder temporary_;
};

void expect_gradients(StageChain& chain, const std::map<std::string, at::Tensor>& expected,
                      const std::string& label) {
  double largest = 0;
  for (const auto& [name, gradient] : expected)
    largest = std::max(largest, gradient.norm().item<double>());
  size_t seen = 0;
  for (auto& stage : chain.stages()) {
    for (const auto& parameter : stage->table().parameters()) {
      ++seen;
      const std::string& name = parameter.spec.name;
      ASSERT_TRUE(expected.contains(name)) << name;
      const at::Tensor wanted = part_of(expected.at(name), parameter.box);
      EXPECT_LE((parameter.grad - wanted).norm().item<double>(), kTolerance * largest)
          << label << name;
    }
  }
  EXPECT_EQ(seen, expected.size()) << label;
}

class HfParity : public ::testing::TestWithParam<const char*> {};

TEST_P(HfParity, ProbabilitiesAndEveryGradientOnEveryTp) {
  const Golden golden(GetParam());
  const auto weights = golden.tensors("weights"), gradients = golden.tensors("gradients");
  const at::Tensor expected = golden.expected("log_probabilities");
  for (const int tp : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      if (tp == 1 && sequence_parallel) continue;  // of no effect
      on_tp_ranks(tp, [&](Mesh& mesh) {
        const std::string label = "tp " + std::to_string(tp) + ", sequence parallel " +
                                  std::to_string(sequence_parallel) + ", rank " +
                                  std::to_string(mesh.tp_rank()) + ": ";
        ModelOptions options;
        options.tensor_parallel.sequence_parallel = sequence_parallel;
        const MicroBatch batch = golden.batch();
        StageChain chain(golden.model()->make_stages(batch.tokens.size(1), mesh, options),
                         [&](const ParameterSpec& spec) { return weights.at(spec.name); });
        chain.forward_backward(batch);
        chain.sum_partial_gradients(mesh);
        expect_gradients(chain, gradients, label);
        const at::Tensor found = chain.log_probabilities(golden.batch(), expected.size(1));
        EXPECT_LE((found - expected).abs().max().item<double>(),
                  kTolerance * expected.abs().max().item<double>())
            << label;
      });
    }
  }
}

TEST_P(HfParity, ExportAfterImportIsTheIdentity) {
  const Golden golden(GetParam());
  export_step(golden.step(), golden.output());
  expect_same_tensors(golden.output() / "model.safetensors", golden.original());
  EXPECT_EQ(read_hf_model(golden.output() / "config.json"), golden.model());
}

// ViT's numbers are encoder_golden_test's; its files hold the parameters by their own names.
TEST(VitFiles, ExportAfterImportIsTheIdentity) {
  const fs::path golden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/data/vit";
  const TemporaryFolder folder;
  fs::create_directory(folder / "hf");
  fs::copy_file(golden / "weights.safetensors", folder / "hf/model.safetensors");
  nlohmann::json config = parse_json(slurp(golden / "config.json"), "config.json");
  config["model_type"] = "vit";
  std::ofstream(folder / "hf/config.json") << config;
  std::ofstream(folder / "hf/preprocessor_config.json") << "{}";
  import_folder(folder / "hf", folder / "step");
  export_step(folder / "step", folder / "out");
  expect_same_tensors(folder / "out/model.safetensors", golden / "weights.safetensors");
  EXPECT_EQ(slurp(folder / "out/preprocessor_config.json"), "{}");
  const auto written = parse_json(slurp(folder / "out/config.json"), "config.json");
  EXPECT_EQ(written.at("architectures"), nlohmann::json::array({"ViTForImageClassification"}));
  EXPECT_EQ(read_hf_model(folder / "out/config.json"), read_hf_model(folder / "hf/config.json"));
}

// The encoder-decoder's numbers are encoder_golden_test's too; its files hold the state_dict of
// torch.nn.Transformer.
TEST(TransformerFiles, ImportGivesTheParametersAndExportTheFile) {
  for (const char* name : {"transformer", "transformer-norm-first"}) {
    SCOPED_TRACE(name);
    const fs::path golden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/data" / name;
    const TemporaryFolder folder;
    fs::create_directory(folder / "hf");
    fs::copy_file(golden / "files.safetensors", folder / "hf/model.safetensors");
    nlohmann::json config = parse_json(slurp(golden / "config.json"), "config.json");
    config["model_type"] = "transformer";
    std::ofstream(folder / "hf/config.json") << config;
    import_folder(folder / "hf", folder / "step");
    const auto weights = read_tensors(golden / "weights.safetensors");
    const auto found = read_weights(folder / "step");
    EXPECT_EQ(found.size(), weights.size());
    for (const auto& [parameter, expected] : weights)
      EXPECT_TRUE(at::equal(found.at(parameter), expected)) << parameter;
    export_step(folder / "step", folder / "out");
    expect_same_tensors(folder / "out/model.safetensors", golden / "files.safetensors");
    EXPECT_EQ(read_hf_model(folder / "out/config.json"), read_hf_model(folder / "hf/config.json"));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HfParity, ::testing::ValuesIn(kGoldenLanguageModels),
                         [](const auto& model) { return golden_test_name(model.param); });

}  // namespace
}  // namespace tessera
