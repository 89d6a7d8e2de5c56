#include "models/vit/vit.h"

#include <ATen/ATen.h>

#include "models/layers/dropout.h"
#include "models/layers/layer_table.h"
#include "models/pre_norm_block.h"
#include "models/vocab_head.h"
#include "parallel/tensor_parallel/first_tokens.h"

namespace tessera {
namespace {

class PatchStage : public Stage {
 public:
  PatchStage(const VitConfig& c, const TensorParallel& tp, const ModelOptions& options)
      : Stage("embedding", tp.size(), tp.rank()),
        config_(c),
        tp_(tp),
        activations_(options.activations),
        dropout_(c.hidden_dropout, options.seed, "vit.embeddings"),
        layers_(table_, "vit.embeddings.", c.initializer_range, tp.sequence_parallel()),
        cls_token_(layers_.matrix("cls_token", {1, 1, c.hidden_size}, Placement::replicate())),
        positions_(layers_.matrix("position_embeddings", {1, c.num_patches() + 1, c.hidden_size},
                                  Placement::replicate())),
        projection_(layers_.matrix("patch_embeddings.projection.weight",
                                   {c.hidden_size, c.num_channels, c.patch_size, c.patch_size},
                                   Placement::replicate())),
        projection_bias_(layers_.vector("patch_embeddings.projection.bias", c.hidden_size,
                                        Placement::replicate(), 0.0)) {}

  TensorList forward(const TensorList&, const MicroBatch& batch) override {
    const int64_t width = config_.hidden_size, length = config_.num_patches() + 1;
    const at::Tensor position =
        tp_.own_positions(batch.images.size(0), length, batch.targets.options());
    // A convolution whose windows do not overlap is a matrix product.
    const at::Tensor w = projection_.value.reshape({width, -1});
    const at::Tensor y =
        at::linear(tp_.own_tokens(patches(batch.images, w.options())), w) + projection_bias_.value;
    const at::Tensor tokens =
        at::where(position.unsqueeze(1) == 0, cls_token_.value.view({1, width}), y) +
        positions_.value.view({length, width}).index_select(0, position);
    return {dropout(tokens.to(activations_), dropout_, batch.rows, tp_)};
  }

  bool backward_reads_parameters() const override { return false; }

 private:
  // [B, C, H, W] -> [B*(P+1), C * patch * patch]: zeros in the class token's place, then the
  // patches row by row.
  at::Tensor patches(const at::Tensor& images, const at::TensorOptions& options) const {
    const int64_t b = images.size(0), c = config_.num_channels, p = config_.patch_size;
    const int64_t n = config_.image_size / p;
    const at::Tensor tokens = at::zeros({b, n * n + 1, c * p * p}, options.requires_grad(false));
    tokens.narrow(1, 1, n * n)
        .view({b, n, n, c, p, p})
        .copy_(images.view({b, c, n, p, n, p}).permute({0, 2, 4, 1, 3, 5}));
    return tokens.view({b * (n * n + 1), c * p * p});
  }

  const VitConfig config_;
  const TensorParallel tp_;
  const at::ScalarType activations_;
  const DropoutPlace dropout_;
  const LayerTable layers_;
  Parameter& cls_token_;
  Parameter& positions_;
  Parameter& projection_;
  Parameter& projection_bias_;
};

BlockParts block_parts(const VitConfig& c) {
  return {.names = {.attention_norm = "layernorm_before",
                    .q = "attention.attention.query",
                    .k = "attention.attention.key",
                    .v = "attention.attention.value",
                    .out = "attention.output.dense",
                    .mlp_norm = "layernorm_after",
                    .up = {"intermediate.dense"},
                    .down = "output.dense",
                    .attention_dropout = "attention.attention",
                    .out_dropout = "attention.output",
                    .down_dropout = "output"},
          .width = c.hidden_size,
          .heads = c.num_attention_heads,
          .kv_heads = c.num_attention_heads,
          .head_dim = c.head_dim(),
          .inner = c.intermediate_size,
          .layer_norm = true,
          .norm_eps = c.layer_norm_eps,
          .qkv_bias = c.qkv_bias,
          .out_bias = true,
          .mlp_bias = true,
          .activation = c.hidden_act,
          .causal = false,
          .std = c.initializer_range,
          .residual_std = c.initializer_range,
          .attention_dropout = c.attention_dropout,
          .hidden_dropout = c.hidden_dropout};
}

class ClassifierStage : public Stage {
 public:
  ClassifierStage(const VitConfig& c, const TensorParallel& tp)
      : Stage("head", tp.size(), tp.rank()),
        tokens_(tp),
        tp_(tp.with_all_tokens()),
        layers_(table_, "", c.initializer_range),
        layernorm_(layers_.norm("vit.layernorm", c.hidden_size, c.layer_norm_eps, /*bias=*/true)),
        classifier_(layers_.matrix("classifier.weight", {c.num_labels, c.hidden_size},
                                   Placement::uneven_shard(0))),
        classifier_bias_(
            layers_.vector("classifier.bias", c.num_labels, Placement::uneven_shard(0), 0.0)) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const at::Tensor x = first_tokens(inputs[0], batch.images.size(0), tokens_);
    return vocab_head_scores(layernorm_(x).y, classifier_, batch, tp_, weight_of(classifier_bias_));
  }

  int64_t logits_bytes(int64_t images) const override {
    return vocab_head_bytes(classifier_, images, tp_);
  }

 private:
  const TensorParallel tokens_;  // between the blocks
  const TensorParallel tp_;      // from the class tokens on
  const LayerTable layers_;
  const Norm layernorm_;
  Parameter& classifier_;
  Parameter& classifier_bias_;
};

}  // namespace

std::vector<std::unique_ptr<Stage>> make_vit(const VitConfig& config, Mesh& mesh,
                                             const ModelOptions& options) {
  const TensorParallel tp(mesh, options.tensor_parallel);
  std::vector<std::unique_ptr<Stage>> stages;
  stages.push_back(std::make_unique<PatchStage>(config, tp, options));
  const BlockParts block = block_parts(config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string number = std::to_string(i);
    stages.push_back(make_pre_norm_block("block " + number, "vit.encoder.layer." + number + ".",
                                         block, tp, options));
  }
  stages.push_back(std::make_unique<ClassifierStage>(config, tp));
  return stages;
}

}  // namespace tessera
