#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "models/layers/attention_options.h"
#include "models/layers/dropout.h"
#include "models/layers/layer_table.h"
#include "models/model_options.h"
#include "models/transformer/transformer.h"
#include "parallel/executor/stage.h"

// What the stages of the encoder-decoder are made of. Each layer adds its parameters to the table
// of its stage; `prefix` of the stage's names names its dropout, too. n counts this rank's tokens,
// N all of the micro-batch: of targets B*S, of sources B*S'.
namespace tessera {

// What all stages of the model share; it outlives their layers.
struct TransformerShared {
  TransformerConfig config;
  TensorParallel tp;
  ModelOptions options;
};

// An embedding with positions; its table is the stage's own or borrowed.
class TransformerEmbedding {
 public:
  TransformerEmbedding(const TransformerShared& shared, Parameter& table, const std::string& name);

  // tokens [B, S] -> [n, E].
  at::Tensor operator()(const at::Tensor& tokens, const MicroBatch& batch);

 private:
  const TransformerShared& shared_;
  Parameter& table_;
  const DropoutPlace dropout_;
  at::Tensor places_;  // of the last length, which a run does not change
};

// Residual connection, dropout and norm around a layer: norm_first: x + f(norm(x)), else
// norm(x + f(x)).
class Sublayer {
 public:
  // (y [n, E], its recipe) -> what is added, [n, E].
  using Layer = std::function<at::Tensor(const at::Tensor&, const Recipe&)>;

  Sublayer(const TransformerShared& shared, const LayerTable& layers, const std::string& prefix,
           int number);

  // x [n, E] -> [n, E].
  at::Tensor operator()(const at::Tensor& x, const MicroBatch& batch, const Layer& layer) const;

 private:
  at::Tensor drop(const at::Tensor& x, const MicroBatch& batch) const;

  const TransformerShared& shared_;
  const Norm norm_;
  const DropoutPlace dropout_;
};

// Attention of a sequence to itself; y [n, E] -> [n, E]. Which keys a query reads is the options'.
class SelfAttention {
 public:
  SelfAttention(const TransformerShared& shared, const LayerTable& layers,
                const std::string& prefix);

  at::Tensor operator()(const at::Tensor& y, const Recipe& make_y, const MicroBatch& batch,
                        AttentionOptions options) const;

 private:
  const TransformerShared& shared_;
  const DropoutPlace dropout_;
  const Linear in_proj_, out_proj_;
};

// Attention of the targets y [n, E] to what the encoder made of the sources, memory [n', E], whose
// padding is not read -> [n, E].
class CrossAttention {
 public:
  CrossAttention(const TransformerShared& shared, const LayerTable& layers,
                 const std::string& prefix);

  at::Tensor operator()(const at::Tensor& y, const Recipe& make_y, const at::Tensor& memory,
                        const MicroBatch& batch) const;

 private:
  const TransformerShared& shared_;
  const DropoutPlace dropout_;
  const Linear q_proj_, kv_proj_, out_proj_;
};

// linear2(activation(linear1(y))), y [n, E] -> [n, E].
class FeedForward {
 public:
  FeedForward(const TransformerShared& shared, const LayerTable& layers, const std::string& prefix);

  at::Tensor operator()(const at::Tensor& y, const Recipe& make_y, const MicroBatch& batch) const;

 private:
  const TransformerShared& shared_;
  const DropoutPlace dropout_;
  const Linear linear1_, linear2_;
};

}  // namespace tessera
