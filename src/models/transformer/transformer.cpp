#include "models/transformer/transformer.h"

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

// What all stages of the model share.
struct Shared {
  TransformerConfig config;
  TensorParallel tp;
  ModelOptions options;

  AttentionShape heads(const MicroBatch& batch) const {
    const int64_t own = config.nhead / tp.size();
    return {batch.tokens.size(0), own, own, config.head_dim()};
  }
  DropoutPlace attention_place(const std::string& name) const {
    return {config.attention_dropout, options.seed, name};
  }
  AttentionDropout attention_dropout(const DropoutPlace& place, const MicroBatch& batch) const {
    return {place, tp.rank() * (config.nhead / tp.size()), batch.rows};
  }
  Recipe or_kept(const Recipe& recipe) const {
    return options.selective_recompute ? recipe : Recipe();
  }
};

// An embedding with positions; its table is the stage's own or borrowed.
class Embedding {
 public:
  Embedding(const Shared& shared, Parameter& table, const std::string& name)
      : shared_(shared),
        table_(table),
        dropout_(shared.config.hidden_dropout, shared.options.seed, name) {}

  // tokens [B, S] -> [B*S, E], under sequence parallelism this rank's rows.
  at::Tensor operator()(const at::Tensor& tokens, const MicroBatch& batch) {
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

 private:
  const Shared& shared_;
  Parameter& table_;
  const DropoutPlace dropout_;
  at::Tensor places_;  // of the last length, which a run does not change
};

// Residual connection, dropout and norm around a layer.
class Sublayer {
 public:
  Sublayer(const Shared& shared, const BiasedTable& layers, const std::string& prefix, int number)
      : shared_(shared),
        norm_(layers.norm("norm" + std::to_string(number), shared.config.d_model)),
        dropout_(shared.config.hidden_dropout, shared.options.seed,
                 prefix + "dropout" + std::to_string(number)) {}

  // layer(y, make_y) -> what is added.
  template <typename Layer>
  at::Tensor operator()(const at::Tensor& x, const MicroBatch& batch, const Layer& layer) const {
    const auto norm = norm_.values();
    const double eps = shared_.config.layer_norm_eps;
    if (shared_.config.norm_first) {
      const auto [residual, y, make_y] = layer_norm(x, norm.weight, norm.bias, eps);
      return residual + drop(layer(y, shared_.or_kept(make_y)), batch);
    }
    return add_layer_norm(x, drop(layer(x, Recipe()), batch), norm.weight, norm.bias, eps).y;
  }

 private:
  at::Tensor drop(const at::Tensor& x, const MicroBatch& batch) const {
    return dropout(x, dropout_, batch.rows, shared_.tp);
  }

  const Shared& shared_;
  const BiasedTable::Norm norm_;
  const DropoutPlace dropout_;
};

class SelfAttention {
 public:
  SelfAttention(const Shared& shared, const BiasedTable& layers, const std::string& prefix)
      : shared_(shared),
        dropout_(shared.attention_place(prefix + "self_attn")),
        in_proj_(layers.columns({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                                shared.config.d_model, shared.config.d_model)),
        out_proj_(layers.rows("self_attn.out_proj", shared.config.d_model, shared.config.d_model)) {
  }

  at::Tensor operator()(const at::Tensor& y, const Recipe& make_y, const MicroBatch& batch,
                        AttentionOptions options) const {
    const auto in = in_proj_.values(), out = out_proj_.values();
    const at::Tensor qkv = column_parallel_linear(y, in.weight, shared_.tp, make_y, in.bias);
    options.dropout = shared_.attention_dropout(dropout_, batch);
    const at::Tensor read = self_attention(qkv, shared_.heads(batch), options);
    return row_parallel_linear(read, out.weight, shared_.tp, {}, out.bias);
  }

 private:
  const Shared& shared_;
  const DropoutPlace dropout_;
  const BiasedTable::Linear in_proj_, out_proj_;
};

class CrossAttention {
 public:
  CrossAttention(const Shared& shared, const BiasedTable& layers, const std::string& prefix)
      : shared_(shared),
        dropout_(shared.attention_place(prefix + "multihead_attn")),
        q_proj_(layers.columns({"multihead_attn.q_proj"}, shared.config.d_model,
                               shared.config.d_model)),
        kv_proj_(layers.columns({"multihead_attn.k_proj", "multihead_attn.v_proj"},
                                shared.config.d_model, shared.config.d_model)),
        out_proj_(
            layers.rows("multihead_attn.out_proj", shared.config.d_model, shared.config.d_model)) {}

  at::Tensor operator()(const at::Tensor& y, const Recipe& make_y, const at::Tensor& memory,
                        const MicroBatch& batch) const {
    const auto q_proj = q_proj_.values(), kv_proj = kv_proj_.values(), out = out_proj_.values();
    const at::Tensor q = column_parallel_linear(y, q_proj.weight, shared_.tp, make_y, q_proj.bias);
    const at::Tensor kv =
        column_parallel_linear(memory, kv_proj.weight, shared_.tp, {}, kv_proj.bias);
    const at::Tensor read =
        cross_attention(q, kv, shared_.heads(batch),
                        {.key_lengths = batch.source_lengths,
                         .dropout = shared_.attention_dropout(dropout_, batch)});
    return row_parallel_linear(read, out.weight, shared_.tp, {}, out.bias);
  }

 private:
  const Shared& shared_;
  const DropoutPlace dropout_;
  const BiasedTable::Linear q_proj_, kv_proj_, out_proj_;
};

class FeedForward {
 public:
  FeedForward(const Shared& shared, const BiasedTable& layers, const std::string& prefix)
      : shared_(shared),
        dropout_(shared.config.activation_dropout, shared.options.seed, prefix + "dropout"),
        linear1_(layers.columns({"linear1"}, shared.config.dim_feedforward, shared.config.d_model)),
        linear2_(layers.rows("linear2", shared.config.d_model, shared.config.dim_feedforward)) {}

  at::Tensor operator()(const at::Tensor& y, const Recipe& make_y, const MicroBatch& batch) const {
    const auto up = linear1_.values(), down = linear2_.values();
    const at::Tensor hidden = column_parallel_linear(y, up.weight, shared_.tp, make_y, up.bias);
    const auto drop = [place = dropout_, rows = batch.rows, tp = shared_.tp](const at::Tensor& x) {
      return column_dropout(x, place, rows, tp);
    };
    const Recipe make_active = activation_recipe(hidden, shared_.config.activation);
    return row_parallel_linear(drop(activate(hidden, shared_.config.activation)), down.weight,
                               shared_.tp, shared_.or_kept([=] { return drop(make_active()); }),
                               down.bias);
  }

 private:
  const Shared& shared_;
  const DropoutPlace dropout_;
  const BiasedTable::Linear linear1_, linear2_;
};

// A stage with what all share; `prefix` of its parameters' names.
class TransformerStage : public Stage {
 public:
  TransformerStage(std::string name, const Shared& shared, const std::string& prefix)
      : Stage(std::move(name), shared.tp.size(), shared.tp.rank()),
        shared_(shared),
        layers_(table_, prefix, shared.config.initializer_range, shared.tp.sequence_parallel()) {}

 protected:
  // The embedding or output matrix `name`, or the one that all uses share.
  Parameter& vocabulary(const std::string& name, Parameter* tied) {
    const TransformerConfig& c = shared_.config;
    return tied ? borrow(*tied)
                : layers_.matrix(name, {c.vocab_size, c.d_model}, Placement::uneven_shard(0));
  }

  const Shared shared_;
  const BiasedTable layers_;
};

class SourceStage : public TransformerStage {
 public:
  explicit SourceStage(const Shared& shared)
      : TransformerStage("source embedding", shared, ""),
        embed_tokens_(vocabulary(
            shared.config.tie_word_embeddings ? "shared.weight" : "encoder.embed_tokens.weight",
            nullptr)),
        embed_(shared_, embed_tokens_, "encoder.embed_tokens") {}

  TensorList forward(const TensorList&, const MicroBatch& batch) override {
    return {embed_(batch.source, batch)};
  }
  bool backward_reads_parameters() const override { return false; }
  Parameter& embed_tokens() { return embed_tokens_; }

 private:
  Parameter& embed_tokens_;
  Embedding embed_;
};

class EncoderStage : public TransformerStage {
 public:
  EncoderStage(const Shared& shared, int64_t index)
      : EncoderStage(shared, index, "encoder.layers." + std::to_string(index) + ".") {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const at::Tensor x = first_(inputs[0], batch, [&](const at::Tensor& y, const Recipe& make_y) {
      return self_attn_(y, make_y, batch, {.key_lengths = batch.source_lengths});
    });
    return {second_(x, batch, [&](const at::Tensor& y, const Recipe& make_y) {
      return feed_forward_(y, make_y, batch);
    })};
  }

 private:
  EncoderStage(const Shared& shared, int64_t index, const std::string& prefix)
      : TransformerStage("encoder layer " + std::to_string(index), shared, prefix),
        self_attn_(shared_, layers_, prefix),
        feed_forward_(shared_, layers_, prefix),
        first_(shared_, layers_, prefix, 1),
        second_(shared_, layers_, prefix, 2) {}

  const SelfAttention self_attn_;
  const FeedForward feed_forward_;
  const Sublayer first_, second_;
};

class TargetStage : public TransformerStage {
 public:
  TargetStage(const Shared& shared, Parameter* tied)
      : TransformerStage("target embedding", shared, ""),
        norm_(layers_.norm("encoder.norm", shared.config.d_model)),
        embed_tokens_(vocabulary("decoder.embed_tokens.weight", tied)),
        embed_(shared_, embed_tokens_, "decoder.embed_tokens") {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const auto norm = norm_.values();
    const at::Tensor memory =
        layer_norm(inputs[0], norm.weight, norm.bias, shared_.config.layer_norm_eps).y;
    return {embed_(batch.tokens, batch), memory};
  }

 private:
  const BiasedTable::Norm norm_;
  Parameter& embed_tokens_;
  Embedding embed_;
};

class DecoderStage : public TransformerStage {
 public:
  DecoderStage(const Shared& shared, int64_t index)
      : DecoderStage(shared, index, "decoder.layers." + std::to_string(index) + ".") {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const at::Tensor& memory = inputs[1];
    at::Tensor x = first_(inputs[0], batch, [&](const at::Tensor& y, const Recipe& make_y) {
      return self_attn_(y, make_y, batch, {.causal = true});
    });
    x = second_(x, batch, [&](const at::Tensor& y, const Recipe& make_y) {
      return multihead_attn_(y, make_y, memory, batch);
    });
    x = third_(x, batch, [&](const at::Tensor& y, const Recipe& make_y) {
      return feed_forward_(y, make_y, batch);
    });
    return {x, memory};
  }

 private:
  DecoderStage(const Shared& shared, int64_t index, const std::string& prefix)
      : TransformerStage("decoder layer " + std::to_string(index), shared, prefix),
        self_attn_(shared_, layers_, prefix),
        multihead_attn_(shared_, layers_, prefix),
        feed_forward_(shared_, layers_, prefix),
        first_(shared_, layers_, prefix, 1),
        second_(shared_, layers_, prefix, 2),
        third_(shared_, layers_, prefix, 3) {}

  const SelfAttention self_attn_;
  const CrossAttention multihead_attn_;
  const FeedForward feed_forward_;
  const Sublayer first_, second_, third_;
};

class OutputStage : public TransformerStage {
 public:
  OutputStage(const Shared& shared, Parameter* tied)
      : TransformerStage("head", shared, ""),
        norm_(layers_.norm("decoder.norm", shared.config.d_model)),
        lm_head_(vocabulary("lm_head.weight", tied)) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const auto norm = norm_.values();
    const at::Tensor y =
        layer_norm(inputs[0], norm.weight, norm.bias, shared_.config.layer_norm_eps).y;
    return vocab_head_scores(y, lm_head_, batch, shared_.tp);
  }

  int64_t logits_bytes(int64_t tokens) const override {
    return vocab_head_bytes(lm_head_, tokens, shared_.tp);
  }

 private:
  const BiasedTable::Norm norm_;
  Parameter& lm_head_;
};

}  // namespace

at::Tensor sinusoidal_positions(int64_t count, int64_t width) {
  const at::Tensor table = at::empty({count, width}, at::kDouble);
  auto* out = table.mutable_data_ptr<double>();
  for (int64_t i = 0; i < width; ++i) {
    const double exponent = static_cast<double>(i / 2 * 2) / static_cast<double>(width);
    const double wavelength = std::pow(10000.0, exponent);  // over 2 pi
    for (int64_t p = 0; p < count; ++p) {
      const double angle = static_cast<double>(p) / wavelength;
      out[p * width + i] = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  }
  return table;
}

std::vector<std::unique_ptr<Stage>> make_transformer(const TransformerConfig& config, Mesh& mesh,
                                                     const ModelOptions& options) {
  const Shared shared{config, TensorParallel(mesh, options.tensor_parallel), options};
  std::vector<std::unique_ptr<Stage>> stages;
  auto source = std::make_unique<SourceStage>(shared);
  Parameter* tied = config.tie_word_embeddings ? &source->embed_tokens() : nullptr;
  stages.push_back(std::move(source));
  for (int64_t i = 0; i < config.num_encoder_layers; ++i)
    stages.push_back(std::make_unique<EncoderStage>(shared, i));
  stages.push_back(std::make_unique<TargetStage>(shared, tied));
  for (int64_t i = 0; i < config.num_decoder_layers; ++i)
    stages.push_back(std::make_unique<DecoderStage>(shared, i));
  stages.push_back(std::make_unique<OutputStage>(shared, tied));
  return stages;
}

}  // namespace tessera
