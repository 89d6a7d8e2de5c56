// ViT and the encoder-decoder against transformers and torch.nn.Transformer on the same weights
// (data/vit, data/transformer*, written by make_encoder_golden.py): loss, log-probabilities of
// every class and every gradient, on 1, 2 and 4 tensor-parallel ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/safetensors.h"
#include "models/scores.h"
#include "models/transformer.h"
#include "models/vit.h"
#include "parallel/comm/thread_communicator.h"

namespace tessera {
namespace {

using Stages = std::vector<std::unique_ptr<Stage>>;
using Tensors = std::map<std::string, at::Tensor>;

// fp32 sums in another order: of logits, relative to the largest; of gradients, to the largest norm
// of any (key biases have a gradient of zero in exact arithmetic).
constexpr double kTolerance = 1e-4;

std::filesystem::path data(const std::string& model) {
  return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/data" / model;
}

Tensors read(const std::filesystem::path& path) {
  const File file = File::open(path);
  const SafetensorsHeader header = read_safetensors_header(file);
  Tensors tensors;
  for (const TensorEntry& entry : header.entries) {
    const at::Tensor tensor =
        at::empty(entry.shape, entry.dtype == Dtype::kI64 ? at::kLong : at::kFloat);
    file.read_at(tensor.data_ptr(), entry.end - entry.begin, header.data_begin + entry.begin);
    tensors[entry.name] = tensor;
  }
  return tensors;
}

at::Tensor part_of(at::Tensor whole, const Box& box) {
  for (size_t dim = 0; dim < box.shape.size(); ++dim)
    whole = whole.narrow(static_cast<int64_t>(dim), box.offset[dim], box.shape[dim]);
  return whole;
}

// The parameters lie in plain tensors; each comes from `weights` once.
void load(Stages& stages, const Tensors& weights) {
  size_t found = 0;
  for (auto& stage : stages) {
    for (ParameterPack& pack : stage->table().packs()) {
      std::vector<at::Tensor> parts;
      for (const Parameter* part : pack.parts) {
        ASSERT_TRUE(weights.contains(part->spec.name)) << part->spec.name;
        const at::Tensor& whole = weights.at(part->spec.name);
        ASSERT_EQ(whole.sizes(), at::IntArrayRef(part->spec.shape)) << part->spec.name;
        parts.push_back(part_of(whole, part->box));
        ++found;
      }
      pack.value = at::cat(parts).contiguous();
      pack.grad = at::zeros_like(pack.value);
      int64_t begin = 0;
      for (Parameter* part : pack.parts) {
        const int64_t rows = part->box.shape[0];
        part->value = pack.value.narrow(0, begin, rows).detach().set_requires_grad(true);
        part->grad = pack.grad.narrow(0, begin, rows);
        part->value.mutable_grad() = part->grad;
        begin += rows;
      }
    }
  }
  EXPECT_EQ(found, weights.size());
}

// Stage by stage, as the executor does it. With `recompute` no graph is kept.
double forward_backward(Stages& stages, const MicroBatch& batch, bool recompute) {
  std::vector<TensorList> inputs(stages.size()), outputs(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    const bool last = i + 1 == stages.size();
    {
      at::AutoGradMode grad_mode(last || !recompute);
      outputs[i] = stages[i]->forward(inputs[i], batch);
    }
    if (last) break;
    for (const at::Tensor& value : outputs[i])
      inputs[i + 1].push_back(value.detach().set_requires_grad(true));
  }
  const double loss = outputs.back()[0].item<double>();
  TensorList grads = {at::ones_like(outputs.back()[0])};
  for (size_t i = stages.size(); i-- > 0;) {
    if (recompute && i + 1 < stages.size()) outputs[i] = stages[i]->forward(inputs[i], batch);
    TensorList roots, root_grads;
    for (size_t k = 0; k < outputs[i].size(); ++k) {
      if (!grads[k].defined()) continue;
      roots.push_back(outputs[i][k]);
      root_grads.push_back(grads[k]);
    }
    torch::autograd::backward(roots, root_grads);
    grads.clear();
    for (const at::Tensor& input : inputs[i]) grads.push_back(input.grad());
  }
  return loss;
}

TensorList evaluate(Stages& stages, const MicroBatch& batch) {
  at::AutoGradMode no_grad(false);
  TensorList values;
  for (auto& stage : stages) values = stage->forward(values, batch);
  return values;
}

// [targets, classes]: the loss of each class at each place, weighed alone, is its -log p.
at::Tensor log_probabilities(Stages& stages, MicroBatch batch, int64_t classes) {
  const int64_t places = batch.targets.numel();
  const at::Tensor result = at::empty({places, classes});
  for (int64_t place = 0; place < places; ++place) {
    batch.weights = at::zeros(batch.targets.sizes());
    batch.weights.view({-1})[place] = 1.0;
    for (int64_t target = 0; target < classes; ++target) {
      batch.targets = at::full_like(batch.targets, target);
      result[place][target] = -evaluate(stages, batch)[kLossSum];
    }
  }
  return result;
}

// make(mesh, options) -> stages.
template <typename Make>
void expect_golden(const std::string& folder, int64_t classes, Make make) {
  const Tensors weights = read(data(folder) / "weights.safetensors");
  const Tensors grads = read(data(folder) / "grads.safetensors");
  Tensors given = read(data(folder) / "batch.safetensors");
  MicroBatch batch;
  batch.tokens = given["tokens"];
  batch.targets = given["targets"];
  batch.weights = given["weights"];
  batch.images = given["images"];
  batch.source = given["source"];
  batch.source_lengths = given["source_lengths"];
  const at::Tensor expected = given["log_probabilities"];
  double largest = 0.0;
  for (const auto& entry : grads)
    largest = std::max(largest, entry.second.norm().template item<double>());
  for (const int tp : {1, 2, 4}) {
    for (const bool recompute : {false, true}) {
      run_thread_ranks(tp, [&](Communicator& world) {
        Mesh mesh({1, 1, tp}, world.split(0, world.rank(), "world"));
        ModelOptions options;
        options.selective_recompute = recompute;
        Stages stages = make(mesh, options);
        load(stages, weights);
        const double loss = given["loss"].item<double>();
        EXPECT_NEAR(forward_backward(stages, batch, recompute), loss, kTolerance * loss);
        for (auto& stage : stages)
          for (const Parameter& p : stage->table().parameters()) {
            const double error =
                (p.grad - part_of(grads.at(p.spec.name), p.box)).norm().item<double>();
            EXPECT_LE(error, kTolerance * largest) << p.spec.name << " at tp " << tp;
          }
        if (recompute) return;
        // At places that count: what padding predicts differs, and has no part in anything.
        const at::Tensor counts = (batch.weights != 0).view({-1, 1});
        const at::Tensor found = log_probabilities(stages, batch, classes) * counts;
        EXPECT_LE((found - expected * counts).abs().max().item<double>(),
                  kTolerance * expected.abs().max().item<double>())
            << "tp " << tp;
        // What evaluation counts follows from them.
        const at::Tensor right =
            (expected.argmax(1).view_as(batch.targets) == batch.targets) & (batch.weights != 0);
        EXPECT_EQ(evaluate(stages, batch)[kRightTargets].item<int64_t>(),
                  right.sum().item<int64_t>());
      });
    }
  }
}

nlohmann::json config_of(const std::string& folder) {
  return nlohmann::json::parse(read_small_file(data(folder) / "config.json", 1 << 16));
}

TEST(EncoderGolden, Vit) {
  const auto json = config_of("vit");
  VitConfig config;
  config.image_size = json.at("image_size");
  config.patch_size = json.at("patch_size");
  config.num_channels = json.at("num_channels");
  config.num_labels = json.at("num_labels");
  config.hidden_size = json.at("hidden_size");
  config.intermediate_size = json.at("intermediate_size");
  config.num_hidden_layers = json.at("num_hidden_layers");
  config.num_attention_heads = json.at("num_attention_heads");
  config.layer_norm_eps = json.at("layer_norm_eps");
  expect_golden("vit", config.num_labels, [&](Mesh& mesh, const ModelOptions& options) {
    return make_vit(config, mesh, options);
  });
}

void expect_transformer(const std::string& folder) {
  const auto json = config_of(folder);
  TransformerConfig config;
  config.d_model = json.at("d_model");
  config.nhead = json.at("nhead");
  config.num_encoder_layers = json.at("num_encoder_layers");
  config.num_decoder_layers = json.at("num_decoder_layers");
  config.dim_feedforward = json.at("dim_feedforward");
  config.activation = json.at("activation") == "relu" ? Activation::kRelu : Activation::kGelu;
  config.norm_first = json.at("norm_first");
  config.layer_norm_eps = json.at("layer_norm_eps");
  config.vocab_size = json.at("vocab_size");
  config.tie_word_embeddings = json.at("tie_word_embeddings");
  expect_golden(folder, config.vocab_size, [&](Mesh& mesh, const ModelOptions& options) {
    return make_transformer(config, mesh, options);
  });
}

TEST(EncoderGolden, TransformerPostNormRelu) {
  expect_transformer("transformer");
}
TEST(EncoderGolden, TransformerPreNormGeluTied) {
  expect_transformer("transformer-norm-first");
}

}  // namespace
}  // namespace tessera
