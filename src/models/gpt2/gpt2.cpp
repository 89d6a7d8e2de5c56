#include "models/gpt2/gpt2.h"

#include <ATen/ATen.h>

#include <cmath>

#include "models/layers/attention.h"
#include "models/layers/biased.h"
#include "models/layers/dropout.h"
#include "models/layers/layer_norm.h"
#include "models/vocab_head.h"
#include "parallel/tensor_parallel/vocab_embedding.h"

namespace tessera {
namespace {

class EmbeddingStage : public Stage {
 public:
  EmbeddingStage(const Gpt2Config& c, const TensorParallel& tp, const ModelOptions& options)
      : Stage("embedding", tp.size(), tp.rank()),
        tp_(tp),
        activations_(options.activations),
        dropout_(c.embd_pdrop, options.seed, "transformer.wte"),
        layers_(table_, "transformer.", c.initializer_range, tp.sequence_parallel()),
        wte_(layers_.matrix("wte.weight", {c.vocab_size, c.n_embd}, Placement::uneven_shard(0))),
        wpe_(layers_.matrix("wpe.weight", {c.n_positions, c.n_embd}, Placement::replicate())) {}

  TensorList forward(const TensorList&, const MicroBatch& batch) override {
    const at::Tensor x = vocab_parallel_embedding(batch.tokens, wte_, tp_, activations_);
    const at::Tensor position =
        tp_.own_positions(batch.tokens.size(0), batch.tokens.size(1), batch.tokens.options());
    const at::Tensor p = wpe_.value.index_select(0, position).to(activations_);
    return {dropout(x + p, dropout_, batch.rows, tp_)};
  }

  bool backward_reads_parameters() const override { return false; }

  Parameter& wte() { return wte_; }

 private:
  const TensorParallel tp_;
  const at::ScalarType activations_;
  const DropoutPlace dropout_;
  const BiasedTable layers_;
  Parameter& wte_;
  Parameter& wpe_;
};

class BlockStage : public Stage {
 public:
  BlockStage(const Gpt2Config& c, int64_t index, const TensorParallel& tp,
             const ModelOptions& options)
      : Stage("block " + std::to_string(index), tp.size(), tp.rank()),
        config_(c),
        prefix_("transformer.h." + std::to_string(index) + "."),
        tp_(tp),
        selective_recompute_(options.selective_recompute),
        attention_dropout_(c.attn_pdrop, options.seed, prefix_ + "attn"),
        attn_dropout_(c.resid_pdrop, options.seed, prefix_ + "attn.c_proj"),
        mlp_dropout_(c.resid_pdrop, options.seed, prefix_ + "mlp.c_proj"),
        layers_(table_, prefix_, c.initializer_range, tp.sequence_parallel()),
        // What adds to the residual stream starts smaller, as its variance grows with the depth.
        residual_(table_, prefix_,
                  c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.n_layer)),
                  tp.sequence_parallel()),
        ln_1_(layers_.norm("ln_1", c.n_embd)),
        c_attn_(layers_.columns({"attn.q", "attn.k", "attn.v"}, c.n_embd, c.n_embd)),
        attn_c_proj_(residual_.rows("attn.c_proj", c.n_embd, c.n_embd)),
        ln_2_(layers_.norm("ln_2", c.n_embd)),
        c_fc_(layers_.columns({"mlp.c_fc"}, c.inner(), c.n_embd)),
        mlp_c_proj_(residual_.rows("mlp.c_proj", c.n_embd, c.inner())) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const double eps = config_.layer_norm_epsilon;
    const Biased ln_1 = ln_1_.values(), ln_2 = ln_2_.values();
    const Biased c_attn = c_attn_.values(), attn_c_proj = attn_c_proj_.values();
    const Biased c_fc = c_fc_.values(), mlp_c_proj = mlp_c_proj_.values();

    const auto [x, y, make_y] = layer_norm(inputs[0], ln_1.weight, ln_1.bias, eps);
    at::Tensor out =
        attend(column_parallel_linear(y, c_attn.weight, tp_, or_kept(make_y), c_attn.bias), batch);
    out = row_parallel_linear(out, attn_c_proj.weight, tp_, {}, attn_c_proj.bias);
    out = dropout(out, attn_dropout_, batch.rows, tp_);
    const auto [x2, y2, make_y2] = add_layer_norm(x, out, ln_2.weight, ln_2.bias, eps);
    const at::Tensor up = column_parallel_linear(y2, c_fc.weight, tp_, or_kept(make_y2), c_fc.bias);
    const Activation gelu = config_.activation_function;
    out = row_parallel_linear(activate(up, gelu), mlp_c_proj.weight, tp_,
                              or_kept(activation_recipe(up, gelu)), mlp_c_proj.bias);
    return {dropout(out, mlp_dropout_, batch.rows, tp_) + x2};
  }

 private:
  at::Tensor attend(const at::Tensor& qkv, const MicroBatch& batch) const {
    const int64_t heads = config_.n_head / tp_.size();
    return self_attention(
        qkv, {batch.tokens.size(0), heads, heads, config_.head_dim()},
        {.causal = true, .dropout = {{attention_dropout_, tp_.rank() * heads, batch.rows}}});
  }

  Recipe or_kept(const Recipe& recipe) const { return selective_recompute_ ? recipe : Recipe(); }

  const Gpt2Config config_;
  const std::string prefix_;
  const TensorParallel tp_;
  const bool selective_recompute_;
  const DropoutPlace attention_dropout_, attn_dropout_, mlp_dropout_;
  const BiasedTable layers_, residual_;
  const BiasedTable::Norm ln_1_;
  const BiasedTable::Linear c_attn_, attn_c_proj_;
  const BiasedTable::Norm ln_2_;
  const BiasedTable::Linear c_fc_, mlp_c_proj_;
};

class HeadStage : public Stage {
 public:
  // `tied`: the embedding's parameter, if the model ties the two, else null.
  HeadStage(const Gpt2Config& c, const TensorParallel& tp, Parameter* tied)
      : Stage("head", tp.size(), tp.rank()),
        eps_(c.layer_norm_epsilon),
        tp_(tp),
        layers_(table_, "", c.initializer_range, tp.sequence_parallel()),
        ln_f_(layers_.norm("transformer.ln_f", c.n_embd)),
        lm_head_(tied ? borrow(*tied)
                      : layers_.matrix("lm_head.weight", {c.vocab_size, c.n_embd},
                                       Placement::uneven_shard(0))) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const Biased ln_f = ln_f_.values();
    const at::Tensor y = layer_norm(inputs[0], ln_f.weight, ln_f.bias, eps_).y;
    return {vocab_head_loss(y, lm_head_, batch, tp_)};
  }

  int64_t logits_bytes(int64_t tokens) const override {
    return vocab_head_bytes(lm_head_, tokens, tp_);
  }

 private:
  const double eps_;
  const TensorParallel tp_;
  const BiasedTable layers_;
  const BiasedTable::Norm ln_f_;
  Parameter& lm_head_;
};

}  // namespace

std::vector<std::unique_ptr<Stage>> make_gpt2(const Gpt2Config& config, Mesh& mesh,
                                              const ModelOptions& options) {
  const TensorParallel tp(mesh, options.tensor_parallel);
  std::vector<std::unique_ptr<Stage>> stages;
  auto embedding = std::make_unique<EmbeddingStage>(config, tp, options);
  Parameter* tied = config.tie_word_embeddings ? &embedding->wte() : nullptr;
  stages.push_back(std::move(embedding));
  for (int64_t i = 0; i < config.n_layer; ++i)
    stages.push_back(std::make_unique<BlockStage>(config, i, tp, options));
  stages.push_back(std::make_unique<HeadStage>(config, tp, tied));
  return stages;
}

}  // namespace tessera
