#include "models/pre_norm_block.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/layers/attention.h"
#include "models/layers/dropout.h"
#include "models/layers/head_norm.h"
#include "models/layers/layer_table.h"
#include "models/layers/swiglu.h"

namespace tessera {
namespace {

class PreNormBlock : public Stage {
 public:
  PreNormBlock(const std::string& name, const std::string& prefix, const BlockParts& parts,
               const TensorParallel& tp, const ModelOptions& options)
      : Stage(name, tp.size(), tp.rank()),
        parts_(parts),
        tp_(tp),
        options_(options),
        attention_dropout_(place(prefix, parts.names.attention_dropout, parts.attention_dropout)),
        out_dropout_(place(prefix, parts.names.out_dropout, parts.hidden_dropout)),
        down_dropout_(place(prefix, parts.names.down_dropout, parts.hidden_dropout)),
        layers_(table_, prefix, parts.std, tp.sequence_parallel()),
        residual_(table_, prefix, parts.residual_std, tp.sequence_parallel()),
        attention_norm_(norm(parts.names.attention_norm)),
        qkv_(layers_.columns({{parts.names.q, parts.heads * parts.head_dim},
                              {parts.names.k, parts.kv_heads * parts.head_dim, kv_copies()},
                              {parts.names.v, parts.kv_heads * parts.head_dim, kv_copies()}},
                             parts.width, parts.qkv_bias)),
        q_norm_(parts.head_norm ? &layers_.head_norm(parts.names.q_norm, parts.head_dim) : nullptr),
        k_norm_(parts.head_norm ? &layers_.head_norm(parts.names.k_norm, parts.head_dim) : nullptr),
        out_(residual_.rows(parts.names.out, parts.width, parts.heads * parts.head_dim,
                            parts.out_bias)),
        mlp_norm_(norm(parts.names.mlp_norm)),
        up_(add_up()),
        down_(residual_.rows(parts.names.down, parts.width, parts.inner, parts.mlp_bias)) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const Biased qkv = qkv_.values(), out = out_.values();
    const auto [x, y, make_y] = attention_norm_(inputs[0]);
    at::Tensor added = attend(
        column_parallel_linear(y, qkv.weight, tp_, options_.recipe_or_kept(make_y), qkv.bias),
        batch);
    added = row_parallel_linear(added, out.weight, tp_, {}, out.bias);
    added = dropout(added, out_dropout_, batch.rows, tp_);
    const auto [x2, y2, make_y2] = mlp_norm_.of_sum(x, added);
    added = dropout(feed_forward(y2, make_y2), down_dropout_, batch.rows, tp_);
    return {added.add_(x2)};
  }

 private:
  // qkv [B*S, (heads + 2 kv_heads) / T * D] -> [B*S, heads / T * D].
  at::Tensor attend(at::Tensor qkv, const MicroBatch& batch) const {
    const int64_t samples = (batch.tokens.defined() ? batch.tokens : batch.images).size(0);
    const AttentionShape shape{samples, parts_.heads / tp_.size(),
                               parts_.kv_heads * kv_copies() / tp_.size(), parts_.head_dim};
    if (q_norm_)
      qkv = norm_heads(qkv, shape, weight_of(*q_norm_), weight_of(*k_norm_), parts_.norm_eps);
    if (parts_.rope) qkv = rotate(qkv, shape.heads + shape.kv_heads, shape.head_dim, *parts_.rope);
    return self_attention(
        qkv, shape,
        {.causal = parts_.causal,
         .window = parts_.window,
         .dropout = {{attention_dropout_, tp_.rank() * shape.heads, batch.rows}}});
  }

  // y [n, H] -> [n, H].
  at::Tensor feed_forward(const at::Tensor& y, const Recipe& make_y) const {
    const Biased up = up_.values(), down = down_.values();
    const at::Tensor inner =
        column_parallel_linear(y, up.weight, tp_, options_.recipe_or_kept(make_y), up.bias);
    const auto& activation = parts_.activation;
    return row_parallel_linear(
        activation ? activate(inner, *activation) : swiglu(inner), down.weight, tp_,
        options_.recipe_or_kept(activation ? activation_recipe(inner, *activation)
                                           : swiglu_recipe(inner)),
        down.bias);
  }

  DropoutPlace place(const std::string& prefix, const std::string& name, double rate) const {
    return {rate, options_.seed, prefix + name};
  }
  Norm norm(const std::string& name) const {
    return layers_.norm(name, parts_.width, parts_.norm_eps, parts_.layer_norm);
  }
  Linear add_up() const {
    std::vector<LayerTable::Columns> layers;
    for (const std::string& name : parts_.names.up) layers.push_back({name, parts_.inner});
    return layers_.columns(layers, parts_.width, parts_.mlp_bias);
  }

  // How many ranks hold each kv head: query head h reads kv head h / (heads / kv heads), so a rank
  // with the t-th of T equal parts of the query heads reads kv heads from t * kv heads / T on.
  int kv_copies() const { return std::max(1, tp_.size() / static_cast<int>(parts_.kv_heads)); }

  const BlockParts parts_;
  const TensorParallel tp_;
  const ModelOptions options_;
  const DropoutPlace attention_dropout_, out_dropout_, down_dropout_;
  const LayerTable layers_, residual_;
  // In the order of the table.
  const Norm attention_norm_;
  const Linear qkv_;
  Parameter* const q_norm_;  // null: none
  Parameter* const k_norm_;
  const Linear out_;
  const Norm mlp_norm_;
  const Linear up_, down_;
};

}  // namespace

std::unique_ptr<Stage> make_pre_norm_block(const std::string& name, const std::string& prefix,
                                           const BlockParts& parts, const TensorParallel& tp,
                                           const ModelOptions& options) {
  return std::make_unique<PreNormBlock>(name, prefix, parts, tp, options);
}

}  // namespace tessera
