#include "models/vit/vit.h"

#include <ATen/ATen.h>

#include "models/layers/attention.h"
#include "models/layers/biased.h"
#include "models/layers/dropout.h"
#include "models/layers/layer_norm.h"
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
  const BiasedTable layers_;
  Parameter& cls_token_;
  Parameter& positions_;
  Parameter& projection_;
  Parameter& projection_bias_;
};

class BlockStage : public Stage {
 public:
  BlockStage(const VitConfig& c, int64_t index, const TensorParallel& tp,
             const ModelOptions& options)
      : Stage("block " + std::to_string(index), tp.size(), tp.rank()),
        config_(c),
        prefix_("vit.encoder.layer." + std::to_string(index) + "."),
        tp_(tp),
        selective_recompute_(options.selective_recompute),
        probabilities_dropout_(c.attention_dropout, options.seed, prefix_ + "attention.attention"),
        attention_dropout_(c.hidden_dropout, options.seed, prefix_ + "attention.output"),
        output_dropout_(c.hidden_dropout, options.seed, prefix_ + "output"),
        layers_(table_, prefix_, c.initializer_range, tp.sequence_parallel()),
        layernorm_before_(layers_.norm("layernorm_before", c.hidden_size)),
        qkv_(layers_.columns(
            {"attention.attention.query", "attention.attention.key", "attention.attention.value"},
            c.hidden_size, c.hidden_size, c.qkv_bias)),
        attention_output_(layers_.rows("attention.output.dense", c.hidden_size, c.hidden_size)),
        layernorm_after_(layers_.norm("layernorm_after", c.hidden_size)),
        intermediate_(layers_.columns({"intermediate.dense"}, c.intermediate_size, c.hidden_size)),
        output_(layers_.rows("output.dense", c.hidden_size, c.intermediate_size)) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const double eps = config_.layer_norm_eps;
    const auto before = layernorm_before_.values(), after = layernorm_after_.values();
    const auto qkv = qkv_.values(), attention_output = attention_output_.values();
    const auto intermediate = intermediate_.values(), output = output_.values();

    const auto [x, y, make_y] = layer_norm(inputs[0], before.weight, before.bias, eps);
    at::Tensor out = column_parallel_linear(y, qkv.weight, tp_, or_kept(make_y), qkv.bias);
    const int64_t heads = config_.num_attention_heads / tp_.size();
    out = self_attention(out, {batch.images.size(0), heads, heads, config_.head_dim()},
                         {.dropout = {{probabilities_dropout_, tp_.rank() * heads, batch.rows}}});
    out = row_parallel_linear(out, attention_output.weight, tp_, {}, attention_output.bias);
    out = dropout(out, attention_dropout_, batch.rows, tp_);
    const auto [x2, y2, make_y2] = add_layer_norm(x, out, after.weight, after.bias, eps);
    const at::Tensor up =
        column_parallel_linear(y2, intermediate.weight, tp_, or_kept(make_y2), intermediate.bias);
    out = row_parallel_linear(activate(up, config_.hidden_act), output.weight, tp_,
                              or_kept(activation_recipe(up, config_.hidden_act)), output.bias);
    return {dropout(out, output_dropout_, batch.rows, tp_) + x2};
  }

 private:
  Recipe or_kept(const Recipe& recipe) const { return selective_recompute_ ? recipe : Recipe(); }

  const VitConfig config_;
  const std::string prefix_;
  const TensorParallel tp_;
  const bool selective_recompute_;
  const DropoutPlace probabilities_dropout_, attention_dropout_, output_dropout_;
  const BiasedTable layers_;
  const BiasedTable::Norm layernorm_before_;
  const BiasedTable::Linear qkv_, attention_output_;
  const BiasedTable::Norm layernorm_after_;
  const BiasedTable::Linear intermediate_, output_;
};

class ClassifierStage : public Stage {
 public:
  ClassifierStage(const VitConfig& c, const TensorParallel& tp)
      : Stage("head", tp.size(), tp.rank()),
        config_(c),
        tokens_(tp),
        tp_(tp.with_all_tokens()),
        layers_(table_, "", c.initializer_range),
        layernorm_(layers_.norm("vit.layernorm", c.hidden_size)),
        classifier_(layers_.matrix("classifier.weight", {c.num_labels, c.hidden_size},
                                   Placement::uneven_shard(0))),
        classifier_bias_(
            layers_.vector("classifier.bias", c.num_labels, Placement::uneven_shard(0), 0.0)) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const at::Tensor x = first_tokens(inputs[0], batch.images.size(0), tokens_);
    const auto norm = layernorm_.values();
    const at::Tensor y = layer_norm(x, norm.weight, norm.bias, config_.layer_norm_eps).y;
    return vocab_head_scores(y, classifier_, batch, tp_, weight_of(classifier_bias_));
  }

  int64_t logits_bytes(int64_t images) const override {
    return vocab_head_bytes(classifier_, images, tp_);
  }

 private:
  const VitConfig config_;
  const TensorParallel tokens_;  // between the blocks
  const TensorParallel tp_;      // from the class tokens on
  const BiasedTable layers_;
  const BiasedTable::Norm layernorm_;
  Parameter& classifier_;
  Parameter& classifier_bias_;
};

}  // namespace

std::vector<std::unique_ptr<Stage>> make_vit(const VitConfig& config, Mesh& mesh,
                                             const ModelOptions& options) {
  const TensorParallel tp(mesh, options.tensor_parallel);
  std::vector<std::unique_ptr<Stage>> stages;
  stages.push_back(std::make_unique<PatchStage>(config, tp, options));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    stages.push_back(std::make_unique<BlockStage>(config, i, tp, options));
  stages.push_back(std::make_unique<ClassifierStage>(config, tp));
  return stages;
}

}  // namespace tessera
