#include "models/llama/llama.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/layers/attention.h"
#include "models/layers/dropout.h"
#include "models/layers/head_norm.h"
#include "models/layers/rms_norm.h"
#include "models/layers/rotary.h"
#include "models/layers/swiglu.h"
#include "models/vocab_head.h"
#include "parallel/tensor_parallel/linear.h"
#include "parallel/tensor_parallel/vocab_embedding.h"

namespace tessera {
namespace {

// The shared description of matrices and norms.
class SpecFactory {
 public:
  SpecFactory(const LlamaConfig& config, const TensorParallel& tp)
      : normal_(Initializer::normal(config.initializer_range)),
        sequence_parallel_(tp.sequence_parallel()) {}

  ParameterSpec matrix(std::string name, int64_t out, int64_t in, Placement placement) const {
    return {std::move(name), {out, in}, placement, normal_, /*decay=*/true};
  }
  ParameterSpec norm(std::string name, int64_t size) const {
    return whole(std::move(name), size, 1.0);
  }
  // A vector that every rank has, whose elements start at `value`.
  ParameterSpec whole(std::string name, int64_t size, double value) const {
    return {.name = std::move(name),
            .shape = {size},
            .tp = Placement::replicate(),
            .init = Initializer::constant(value),
            .decay = false,
            .partial_gradient = sequence_parallel_};
  }

 private:
  Initializer normal_;
  bool sequence_parallel_;
};

class EmbeddingStage : public Stage {
 public:
  EmbeddingStage(const LlamaConfig& config, const TensorParallel& tp, const ModelOptions& options)
      : Stage("embedding", tp.size(), tp.rank()),
        tp_(tp),
        activations_(options.activations),
        dropout_(config.embedding_dropout, options.seed, "model.embed_tokens"),
        embed_tokens_(table_.add(SpecFactory(config, tp)
                                     .matrix("model.embed_tokens.weight", config.vocab_size,
                                             config.hidden_size, Placement::uneven_shard(0)))) {}

  TensorList forward(const TensorList&, const MicroBatch& batch) override {
    const at::Tensor x = vocab_parallel_embedding(batch.tokens, embed_tokens_, tp_, activations_);
    return {dropout(x, dropout_, batch.rows, tp_)};
  }

  bool backward_reads_parameters() const override { return false; }

  Parameter& embed_tokens() { return embed_tokens_; }

 private:
  const TensorParallel tp_;
  const at::ScalarType activations_;
  const DropoutPlace dropout_;
  Parameter& embed_tokens_;
};

class BlockStage : public Stage {
 public:
  BlockStage(const LlamaConfig& c, int64_t index, std::shared_ptr<const RopeTable> rope,
             const TensorParallel& tp, const ModelOptions& options)
      : Stage("block " + std::to_string(index), tp.size(), tp.rank()),
        config_(c),
        prefix_("model.layers." + std::to_string(index) + "."),
        rope_(std::move(rope)),
        tp_(tp),
        selective_recompute_(options.selective_recompute),
        attention_dropout_(c.attention_dropout, options.seed, prefix_ + "self_attn"),
        o_dropout_(c.hidden_dropout, options.seed, prefix_ + "self_attn.o_proj"),
        down_dropout_(c.hidden_dropout, options.seed, prefix_ + "mlp.down_proj"),
        spec_(c, tp),
        input_layernorm_(table_.add(spec_.norm(prefix_ + "input_layernorm.weight", c.hidden_size))),
        qkv_proj_(table_.add_pack(
            {matrix("self_attn.q_proj", c.num_attention_heads * c.head_dim(), c.hidden_size, kRows),
             kv_matrix("self_attn.k_proj"), kv_matrix("self_attn.v_proj")})),
        qkv_bias_(c.qkv_bias || c.attention_bias ? &add_qkv_bias() : nullptr),
        q_norm_(c.qk_norm ? &table_.add(head_norm("self_attn.q_norm")) : nullptr),
        k_norm_(c.qk_norm ? &table_.add(head_norm("self_attn.k_norm")) : nullptr),
        o_proj_(table_.add(matrix("self_attn.o_proj", c.hidden_size,
                                  c.num_attention_heads * c.head_dim(), kColumns))),
        o_bias_(c.attention_bias ? &table_.add(spec_.whole(prefix_ + "self_attn.o_proj.bias",
                                                           c.hidden_size, 0.0))
                                 : nullptr),
        post_attention_layernorm_(
            table_.add(spec_.norm(prefix_ + "post_attention_layernorm.weight", c.hidden_size))),
        gate_up_proj_(
            table_.add_pack({matrix("mlp.gate_proj", c.intermediate_size, c.hidden_size, kRows),
                             matrix("mlp.up_proj", c.intermediate_size, c.hidden_size, kRows)})),
        down_proj_(
            table_.add(matrix("mlp.down_proj", c.hidden_size, c.intermediate_size, kColumns))) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const double eps = config_.rms_norm_eps;
    const auto [x, y, make_y] = rms_norm(inputs[0], weight_of(input_layernorm_), eps);
    at::Tensor out = attend(column_parallel_linear(y, weight_of(qkv_proj_), tp_, or_kept(make_y),
                                                   qkv_bias_ ? weight_of(*qkv_bias_) : Weight()),
                            batch);
    out = row_parallel_linear(out, weight_of(o_proj_), tp_, {},
                              o_bias_ ? weight_of(*o_bias_) : Weight());
    out = dropout(out, o_dropout_, batch.rows, tp_);
    const auto [x2, y2, make_y2] = add_rms_norm(x, out, weight_of(post_attention_layernorm_), eps);
    const at::Tensor gate_up =
        column_parallel_linear(y2, weight_of(gate_up_proj_), tp_, or_kept(make_y2));
    out = row_parallel_linear(swiglu(gate_up), weight_of(down_proj_), tp_,
                              or_kept(swiglu_recipe(gate_up)));
    return {dropout(out, down_dropout_, batch.rows, tp_).add_(x2)};
  }

 private:
  static constexpr Placement kRows = Placement::shard(0), kColumns = Placement::shard(1);

  at::Tensor attend(at::Tensor qkv, const MicroBatch& batch) const {
    const AttentionShape shape{batch.tokens.size(0), config_.num_attention_heads / tp_.size(),
                               config_.num_key_value_heads * kv_copies() / tp_.size(),
                               config_.head_dim()};
    if (q_norm_)
      qkv = norm_heads(qkv, shape, weight_of(*q_norm_), weight_of(*k_norm_), config_.rms_norm_eps);
    qkv = rotate(qkv, shape.heads + shape.kv_heads, shape.head_dim, *rope_);
    return self_attention(
        qkv, shape,
        {.causal = true,
         .window = config_.sliding_window,
         .dropout = {{attention_dropout_, tp_.rank() * shape.heads, batch.rows}}});
  }

  Recipe or_kept(const Recipe& recipe) const { return selective_recompute_ ? recipe : Recipe(); }

  ParameterSpec matrix(const std::string& name, int64_t out, int64_t in,
                       Placement placement) const {
    return spec_.matrix(prefix_ + name + ".weight", out, in, placement);
  }
  ParameterSpec kv_matrix(const std::string& name) const {
    return matrix(name, config_.num_key_value_heads * config_.head_dim(), config_.hidden_size,
                  Placement::shard(0, kv_copies()));
  }

  ParameterPack& add_qkv_bias() {
    const int64_t kv_heads = config_.num_key_value_heads;
    return table_.add_pack({bias("self_attn.q_proj", config_.num_attention_heads, 1),
                            bias("self_attn.k_proj", kv_heads, kv_copies()),
                            bias("self_attn.v_proj", kv_heads, kv_copies())});
  }
  ParameterSpec bias(const std::string& name, int64_t heads, int copies) const {
    return {.name = prefix_ + name + ".bias",
            .shape = {heads * config_.head_dim()},
            .tp = Placement::shard(0, copies),
            .init = Initializer::constant(0.0),
            .decay = false};
  }
  // Every rank has heads of its own.
  ParameterSpec head_norm(const std::string& name) const {
    ParameterSpec spec = spec_.norm(prefix_ + name + ".weight", config_.head_dim());
    spec.partial_gradient = true;
    return spec;
  }

  // How many ranks hold each kv head: query head h reads kv head h / (heads / kv heads), so a rank
  // with the t-th of T equal parts of the query heads reads kv heads from t * kv heads / T on.
  int kv_copies() const {
    return std::max(1, tp_.size() / static_cast<int>(config_.num_key_value_heads));
  }

  const LlamaConfig config_;
  const std::string prefix_;
  std::shared_ptr<const RopeTable> rope_;
  const TensorParallel tp_;
  const bool selective_recompute_;
  const DropoutPlace attention_dropout_, o_dropout_, down_dropout_;
  const SpecFactory spec_;
  Parameter& input_layernorm_;
  ParameterPack& qkv_proj_;
  ParameterPack* const qkv_bias_;  // null: none
  Parameter* const q_norm_;        // null: none
  Parameter* const k_norm_;
  Parameter& o_proj_;
  Parameter* const o_bias_;  // null: none
  Parameter& post_attention_layernorm_;
  ParameterPack& gate_up_proj_;
  Parameter& down_proj_;
};

class HeadStage : public Stage {
 public:
  // `tied`: the embedding's parameter, if the model ties the two, else null.
  HeadStage(const LlamaConfig& c, const TensorParallel& tp, Parameter* tied)
      : Stage("head", tp.size(), tp.rank()),
        eps_(c.rms_norm_eps),
        tp_(tp),
        norm_(table_.add(SpecFactory(c, tp).norm("model.norm.weight", c.hidden_size))),
        lm_head_(tied ? borrow(*tied)
                      : table_.add(SpecFactory(c, tp).matrix("lm_head.weight", c.vocab_size,
                                                             c.hidden_size,
                                                             Placement::uneven_shard(0)))) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const at::Tensor y = rms_norm(inputs[0], weight_of(norm_), eps_).y;
    return {vocab_head_loss(y, lm_head_, batch, tp_)};
  }

  int64_t logits_bytes(int64_t tokens) const override {
    return vocab_head_bytes(lm_head_, tokens, tp_);
  }

 private:
  const double eps_;
  const TensorParallel tp_;
  Parameter& norm_;
  Parameter& lm_head_;
};

}  // namespace

std::vector<std::unique_ptr<Stage>> make_llama(const LlamaConfig& config, int64_t seq_len,
                                               Mesh& mesh, const ModelOptions& options) {
  const TensorParallel tp(mesh, options.tensor_parallel);
  const auto rope = std::make_shared<const RopeTable>(seq_len, config.head_dim(), config.rope_theta,
                                                      options.buffers, config.rope_scaling,
                                                      mesh.device().torch_device());
  std::vector<std::unique_ptr<Stage>> stages;
  auto embedding = std::make_unique<EmbeddingStage>(config, tp, options);
  Parameter* tied = config.tie_word_embeddings ? &embedding->embed_tokens() : nullptr;
  stages.push_back(std::move(embedding));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    stages.push_back(std::make_unique<BlockStage>(config, i, rope, tp, options));
  stages.push_back(std::make_unique<HeadStage>(config, tp, tied));
  return stages;
}

}  // namespace tessera
