#include "models/transformer/transformer_layers.h"

#include <ATen/ATen.h>

#include <cmath>

#include "models/layers/attention.h"
#include "parallel/tensor_parallel/vocab_embedding.h"

namespace tessera {
namespace {

AttentionShape own_heads(const TransformerShared& shared, const MicroBatch& batch) {
  const int64_t own = shared.config.nhead / shared.tp.size();
  return {batch.tokens.size(0), own, own, shared.config.head_dim()};
}

DropoutPlace attention_place(const TransformerShared& shared, const std::string& name) {
  return {shared.config.attention_dropout, shared.options.seed, name};
}

AttentionDropout own_dropout(const TransformerShared& shared, const DropoutPlace& place,
                             const MicroBatch& batch) {
  return {place, shared.tp.rank() * (shared.config.nhead / shared.tp.size()), batch.rows};
}

}  // namespace

TransformerEmbedding::TransformerEmbedding(const TransformerShared& shared, Parameter& table,
                                           const std::string& name)
    : shared_(shared),
      table_(table),
      dropout_(shared.config.hidden_dropout, shared.options.seed, name) {}

at::Tensor TransformerEmbedding::operator()(const at::Tensor& tokens, const MicroBatch& batch) {
  const int64_t width = shared_.config.d_model;
  const at::Tensor found =
      vocab_parallel_embedding(tokens, table_, shared_.tp, shared_.options.activations);
  if (!places_.defined() || places_.size(0) != tokens.size(1))
    places_ = sinusoidal_positions(tokens.size(1), width).to(found.options());
  const at::Tensor position =
      shared_.tp.own_positions(tokens.size(0), tokens.size(1), tokens.options());
  const at::Tensor x =
      found * std::sqrt(static_cast<double>(width)) + places_.index_select(0, position);
  return dropout(x, dropout_, batch.rows, shared_.tp);
}

Sublayer::Sublayer(const TransformerShared& shared, const LayerTable& layers,
                   const std::string& prefix, int number)
    : shared_(shared),
      norm_(layers.norm("norm" + std::to_string(number), shared.config.d_model,
                        shared.config.layer_norm_eps, /*bias=*/true)),
      dropout_(shared.config.hidden_dropout, shared.options.seed,
               prefix + "dropout" + std::to_string(number)) {}

at::Tensor Sublayer::operator()(const at::Tensor& x, const MicroBatch& batch,
                                const Layer& layer) const {
  if (shared_.config.norm_first) {
    const auto [residual, y, make_y] = norm_(x);
    return residual + drop(layer(y, shared_.options.recipe_or_kept(make_y)), batch);
  }
  return norm_.of_sum(x, drop(layer(x, Recipe()), batch)).y;
}

at::Tensor Sublayer::drop(const at::Tensor& x, const MicroBatch& batch) const {
  return dropout(x, dropout_, batch.rows, shared_.tp);
}

SelfAttention::SelfAttention(const TransformerShared& shared, const LayerTable& layers,
                             const std::string& prefix)
    : shared_(shared),
      dropout_(attention_place(shared, prefix + "self_attn")),
      in_proj_(layers.columns({{"self_attn.q_proj", shared.config.d_model},
                               {"self_attn.k_proj", shared.config.d_model},
                               {"self_attn.v_proj", shared.config.d_model}},
                              shared.config.d_model, /*bias=*/true)),
      out_proj_(layers.rows("self_attn.out_proj", shared.config.d_model, shared.config.d_model,
                            /*bias=*/true)) {}

at::Tensor SelfAttention::operator()(const at::Tensor& y, const Recipe& make_y,
                                     const MicroBatch& batch, AttentionOptions options) const {
  const Biased in = in_proj_.values(), out = out_proj_.values();
  const at::Tensor qkv = column_parallel_linear(y, in.weight, shared_.tp, make_y, in.bias);
  options.dropout = own_dropout(shared_, dropout_, batch);
  const at::Tensor read = self_attention(qkv, own_heads(shared_, batch), options);
  return row_parallel_linear(read, out.weight, shared_.tp, {}, out.bias);
}

CrossAttention::CrossAttention(const TransformerShared& shared, const LayerTable& layers,
                               const std::string& prefix)
    : shared_(shared),
      dropout_(attention_place(shared, prefix + "multihead_attn")),
      q_proj_(layers.columns({{"multihead_attn.q_proj", shared.config.d_model}},
                             shared.config.d_model, /*bias=*/true)),
      kv_proj_(layers.columns({{"multihead_attn.k_proj", shared.config.d_model},
                               {"multihead_attn.v_proj", shared.config.d_model}},
                              shared.config.d_model, /*bias=*/true)),
      out_proj_(layers.rows("multihead_attn.out_proj", shared.config.d_model, shared.config.d_model,
                            /*bias=*/true)) {}

at::Tensor CrossAttention::operator()(const at::Tensor& y, const Recipe& make_y,
                                      const at::Tensor& memory, const MicroBatch& batch) const {
  const Biased q_proj = q_proj_.values(), kv_proj = kv_proj_.values(), out = out_proj_.values();
  const at::Tensor q = column_parallel_linear(y, q_proj.weight, shared_.tp, make_y, q_proj.bias);
  const at::Tensor kv =
      column_parallel_linear(memory, kv_proj.weight, shared_.tp, {}, kv_proj.bias);
  const at::Tensor read = cross_attention(
      q, kv, own_heads(shared_, batch),
      {.key_lengths = batch.source_lengths, .dropout = own_dropout(shared_, dropout_, batch)});
  return row_parallel_linear(read, out.weight, shared_.tp, {}, out.bias);
}

FeedForward::FeedForward(const TransformerShared& shared, const LayerTable& layers,
                         const std::string& prefix)
    : shared_(shared),
      dropout_(shared.config.activation_dropout, shared.options.seed, prefix + "dropout"),
      linear1_(layers.columns({{"linear1", shared.config.dim_feedforward}}, shared.config.d_model,
                              /*bias=*/true)),
      linear2_(layers.rows("linear2", shared.config.d_model, shared.config.dim_feedforward,
                           /*bias=*/true)) {}

at::Tensor FeedForward::operator()(const at::Tensor& y, const Recipe& make_y,
                                   const MicroBatch& batch) const {
  const Biased up = linear1_.values(), down = linear2_.values();
  const at::Tensor hidden = column_parallel_linear(y, up.weight, shared_.tp, make_y, up.bias);
  const auto drop = [place = dropout_, rows = batch.rows, tp = shared_.tp](const at::Tensor& x) {
    return column_dropout(x, place, rows, tp);
  };
  const Recipe make_active = activation_recipe(hidden, shared_.config.activation);
  return row_parallel_linear(
      drop(activate(hidden, shared_.config.activation)), down.weight, shared_.tp,
      shared_.options.recipe_or_kept([=] { return drop(make_active()); }), down.bias);
}

}  // namespace tessera
