#include "models/transformer/transformer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "models/transformer/transformer_layers.h"
#include "models/vocab_head.h"

namespace tessera {
namespace {

// A stage with what all share; `prefix` of its parameters' names.
class TransformerStage : public Stage {
 public:
  TransformerStage(std::string name, const TransformerShared& shared, const std::string& prefix)
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

  const TransformerShared shared_;
  const LayerTable layers_;
};

class SourceStage : public TransformerStage {
 public:
  explicit SourceStage(const TransformerShared& shared)
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
  TransformerEmbedding embed_;
};

class EncoderStage : public TransformerStage {
 public:
  EncoderStage(const TransformerShared& shared, int64_t index)
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
  EncoderStage(const TransformerShared& shared, int64_t index, const std::string& prefix)
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
  TargetStage(const TransformerShared& shared, Parameter* tied)
      : TransformerStage("target embedding", shared, ""),
        norm_(layers_.norm("encoder.norm", shared.config.d_model, shared.config.layer_norm_eps,
                           /*bias=*/true)),
        embed_tokens_(vocabulary("decoder.embed_tokens.weight", tied)),
        embed_(shared_, embed_tokens_, "decoder.embed_tokens") {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    return {embed_(batch.tokens, batch), norm_(inputs[0]).y};
  }

 private:
  const Norm norm_;
  Parameter& embed_tokens_;
  TransformerEmbedding embed_;
};

class DecoderStage : public TransformerStage {
 public:
  DecoderStage(const TransformerShared& shared, int64_t index)
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
  DecoderStage(const TransformerShared& shared, int64_t index, const std::string& prefix)
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
  OutputStage(const TransformerShared& shared, Parameter* tied)
      : TransformerStage("head", shared, ""),
        norm_(layers_.norm("decoder.norm", shared.config.d_model, shared.config.layer_norm_eps,
                           /*bias=*/true)),
        lm_head_(vocabulary("lm_head.weight", tied)) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    return vocab_head_scores(norm_(inputs[0]).y, lm_head_, batch, shared_.tp);
  }

  int64_t logits_bytes(int64_t tokens) const override {
    return vocab_head_bytes(lm_head_, tokens, shared_.tp);
  }

 private:
  const Norm norm_;
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
  const TransformerShared shared{config, TensorParallel(mesh, options.tensor_parallel), options};
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
