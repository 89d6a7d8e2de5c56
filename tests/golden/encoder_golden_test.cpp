// ViT and the encoder-decoder against transformers and torch.nn.Transformer on the same weights
// (data/vit, data/transformer*, written by make_encoder_golden.py): loss, log-probabilities of
// every class and every gradient, on 1, 2 and 4 tensor-parallel ranks, with and without sequence
// parallelism.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files/files.h"
#include "models/registry.h"
#include "models/scores.h"
#include "models/stage_chain.h"
#include "support/folders.h"
#include "support/read_tensors.h"

namespace tessera {
namespace {

// fp32 sums in another order: of logits, relative to the largest; of gradients, to the largest norm
// of any (key biases have a gradient of zero in exact arithmetic).
constexpr double kTolerance = 1e-4;

std::filesystem::path data(const std::string& model) {
  return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/data" / model;
}

// The model of config.json, of `type`.
void expect_golden(const std::string& folder, const std::string& type) {
  nlohmann::json config =
      nlohmann::json::parse(read_small_file(data(folder) / "config.json", 1 << 16));
  config["model_type"] = type;
  const AnyModel model = model_from_hf(config, folder);
  const auto weights = read_tensors(data(folder) / "weights.safetensors");
  const auto grads = read_tensors(data(folder) / "grads.safetensors");
  auto given = read_tensors(data(folder) / "batch.safetensors");
  MicroBatch batch;
  batch.tokens = given["tokens"];
  batch.targets = given["targets"];
  batch.weights = given["weights"];
  batch.images = given["images"];
  batch.source = given["source"];
  batch.source_lengths = given["source_lengths"];
  const at::Tensor expected = given["log_probabilities"];
  double largest = 0.0;
  for (const auto& entry : grads) largest = std::max(largest, entry.second.norm().item<double>());
  struct Case {
    int tp;
    bool sequence_parallel;
    bool recompute;
  };
  for (const Case c : {Case{1, false, false},
                       {1, false, true},
                       {2, false, false},
                       {2, true, false},
                       {2, true, true},
                       {4, false, true},
                       {4, false, false},
                       {4, true, false},
                       {4, true, true}}) {
    for (const auto overlap : {TpOverlap::kBackward, TpOverlap::kRing}) {
      if (overlap == TpOverlap::kRing && !c.sequence_parallel) continue;
      on_tp_ranks(c.tp, [&](Mesh& mesh) {
        const std::string label =
            fmt::format(", tp {}, sequence parallel {}, recompute {}, ring {}", c.tp,
                        c.sequence_parallel, c.recompute, overlap == TpOverlap::kRing);
        ModelOptions options;
        options.selective_recompute = c.recompute;
        options.tensor_parallel = {.sequence_parallel = c.sequence_parallel, .overlap = overlap};
        size_t found = 0;  // each comes from the file once
        StageChain chain(model->make_stages(/*seq_len=*/0, mesh, options),
                         [&](const ParameterSpec& spec) {
                           const at::Tensor whole = weights.at(spec.name);
                           EXPECT_EQ(whole.sizes(), at::IntArrayRef(spec.shape)) << spec.name;
                           ++found;
                           return whole;
                         });
        EXPECT_EQ(found, weights.size());
        const double loss = given["loss"].item<double>();
        EXPECT_NEAR(chain.forward_backward(batch, c.recompute), loss, kTolerance * loss) << label;
        chain.sum_partial_gradients(mesh);
        for (auto& stage : chain.stages())
          for (const Parameter& p : stage->table().parameters()) {
            const double error =
                (p.grad - part_of(grads.at(p.spec.name), p.box)).norm().item<double>();
            EXPECT_LE(error, kTolerance * largest) << p.spec.name << label;
          }
        if (c.recompute) return;
        // At places that count: what padding predicts differs, and has no part in anything.
        const at::Tensor counts = (batch.weights != 0).view({-1, 1});
        const at::Tensor logs = chain.log_probabilities(batch, expected.size(1)) * counts;
        EXPECT_LE((logs - expected * counts).abs().max().item<double>(),
                  kTolerance * expected.abs().max().item<double>())
            << label;
        // What evaluation counts follows from them.
        const at::Tensor right =
            (expected.argmax(1).view_as(batch.targets) == batch.targets) & (batch.weights != 0);
        EXPECT_EQ(chain.evaluate(batch)[kRightTargets].item<int64_t>(), right.sum().item<int64_t>())
            << label;
      });
    }
  }
}

TEST(EncoderGolden, Vit) {
  expect_golden("vit", "vit");
}
TEST(EncoderGolden, TransformerPostNormRelu) {
  expect_golden("transformer", "transformer");
}
TEST(EncoderGolden, TransformerPreNormGeluTied) {
  expect_golden("transformer-norm-first", "transformer");
}

}  // namespace
}  // namespace tessera
