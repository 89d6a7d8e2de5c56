#include "models/llama.h"

#include <ATen/ATen.h>

#include "models/layers/attention.h"
#include "models/layers/attention_dropout.h"
#include "models/layers/dropout.h"
#include "models/layers/rms_norm.h"
#include "models/layers/swiglu.h"
#include "parallel/tensor_parallel/linear.h"
#include "parallel/tensor_parallel/vocab_cross_entropy.h"
#include "parallel/tensor_parallel/vocab_embedding.h"

namespace tessera {
namespace {

Weight weight_of(const ParameterPack& pack) {
  return {pack.value, pack.grad};
}
Weight weight_of(const Parameter& parameter) {
  return {parameter.value, parameter.grad};
}

// The shared description of matrices and norms.
class SpecFactory {
 public:
  explicit SpecFactory(const LlamaConfig& config)
      : normal_(Initializer::normal(config.initializer_range)) {}

  ParameterSpec matrix(std::string name, int64_t out, int64_t in, int shard_dim) const {
    return {std::move(name), {out, in}, Placement::shard(shard_dim), normal_, /*decay=*/true};
  }
  ParameterSpec norm(std::string name, int64_t size) const {
    return {std::move(name),
            {size},
            Placement::replicate(),
            Initializer::constant(1.0),
            /*decay=*/false};
  }

 private:
  Initializer normal_;
};

class EmbeddingStage : public Stage {
 public:
  EmbeddingStage(const LlamaConfig& config, Mesh& mesh, const LlamaOptions& options)
      : Stage("embedding", mesh.tp(), mesh.tp_rank()),
        mesh_(mesh),
        activations_(options.activations),
        dropout_(config.embedding_dropout, options.seed, "model.embed_tokens"),
        embed_tokens_(table_.add(SpecFactory(config).matrix(
            "model.embed_tokens.weight", config.vocab_size, config.hidden_size, 0))) {}

  TensorList forward(const TensorList&, const MicroBatch& batch) override {
    const at::Tensor x =
        vocab_parallel_embedding(batch.tokens, embed_tokens_, mesh_.tp_group(), activations_);
    return {dropout(x, dropout_, batch.rows)};
  }

  bool backward_reads_parameters() const override { return false; }

  Parameter& embed_tokens() { return embed_tokens_; }

 private:
  Mesh& mesh_;
  const at::ScalarType activations_;
  const DropoutPlace dropout_;
  Parameter& embed_tokens_;
};

class BlockStage : public Stage {
 public:
  BlockStage(const LlamaConfig& c, int64_t index, std::shared_ptr<const RopeTable> rope, Mesh& mesh,
             const LlamaOptions& options)
      : Stage("block " + std::to_string(index), mesh.tp(), mesh.tp_rank()),
        config_(c),
        prefix_("model.layers." + std::to_string(index) + "."),
        rope_(std::move(rope)),
        mesh_(mesh),
        selective_recompute_(options.selective_recompute),
        attention_dropout_(c.attention_dropout, options.seed, prefix_ + "self_attn"),
        o_dropout_(c.hidden_dropout, options.seed, prefix_ + "self_attn.o_proj"),
        down_dropout_(c.hidden_dropout, options.seed, prefix_ + "mlp.down_proj"),
        spec_(c),
        input_layernorm_(table_.add(spec_.norm(prefix_ + "input_layernorm.weight", c.hidden_size))),
        qkv_proj_(table_.add_pack(
            {matrix("self_attn.q_proj", c.num_attention_heads * c.head_dim(), c.hidden_size, 0),
             matrix("self_attn.k_proj", c.num_key_value_heads * c.head_dim(), c.hidden_size, 0),
             matrix("self_attn.v_proj", c.num_key_value_heads * c.head_dim(), c.hidden_size, 0)})),
        o_proj_(table_.add(
            matrix("self_attn.o_proj", c.hidden_size, c.num_attention_heads * c.head_dim(), 1))),
        post_attention_layernorm_(
            table_.add(spec_.norm(prefix_ + "post_attention_layernorm.weight", c.hidden_size))),
        gate_up_proj_(
            table_.add_pack({matrix("mlp.gate_proj", c.intermediate_size, c.hidden_size, 0),
                             matrix("mlp.up_proj", c.intermediate_size, c.hidden_size, 0)})),
        down_proj_(table_.add(matrix("mlp.down_proj", c.hidden_size, c.intermediate_size, 1))) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    Communicator& tp = mesh_.tp_group();
    const double eps = config_.rms_norm_eps;
    const auto [x, y, make_y] = rms_norm(inputs[0], weight_of(input_layernorm_), eps);
    at::Tensor out =
        attend(column_parallel_linear(y, weight_of(qkv_proj_), tp, or_kept(make_y)), batch);
    out = row_parallel_linear(out, weight_of(o_proj_), tp);
    out = dropout(out, o_dropout_, batch.rows);
    const auto [x2, y2, make_y2] = add_rms_norm(x, out, weight_of(post_attention_layernorm_), eps);
    const at::Tensor gate_up =
        column_parallel_linear(y2, weight_of(gate_up_proj_), tp, or_kept(make_y2));
    out = row_parallel_linear(swiglu(gate_up), weight_of(down_proj_), tp,
                              or_kept(swiglu_recipe(gate_up)));
    return {dropout(out, down_dropout_, batch.rows).add_(x2)};
  }

 private:
  at::Tensor attend(const at::Tensor& qkv, const MicroBatch& batch) const {
    const AttentionShape shape{batch.tokens.size(0), batch.tokens.size(1),
                               config_.num_attention_heads / mesh_.tp(),
                               config_.num_key_value_heads / mesh_.tp(), config_.head_dim()};
    if (attention_dropout_.p == 0 || !batch.rows.defined())
      return causal_attention(qkv, shape, *rope_);
    const int64_t first_head = mesh_.tp_rank() * shape.heads;
    return dropout_attention(qkv, shape, *rope_, {attention_dropout_, first_head, batch.rows});
  }

  Recipe or_kept(const Recipe& recipe) const { return selective_recompute_ ? recipe : Recipe(); }

  ParameterSpec matrix(const std::string& name, int64_t out, int64_t in, int shard_dim) const {
    return spec_.matrix(prefix_ + name + ".weight", out, in, shard_dim);
  }

  const LlamaConfig config_;
  const std::string prefix_;
  std::shared_ptr<const RopeTable> rope_;
  Mesh& mesh_;
  const bool selective_recompute_;
  const DropoutPlace attention_dropout_, o_dropout_, down_dropout_;
  const SpecFactory spec_;
  Parameter& input_layernorm_;
  ParameterPack& qkv_proj_;
  Parameter& o_proj_;
  Parameter& post_attention_layernorm_;
  ParameterPack& gate_up_proj_;
  Parameter& down_proj_;
};

class HeadStage : public Stage {
 public:
  // `tied`: the embedding's parameter, if the model ties the two, else null.
  HeadStage(const LlamaConfig& c, Mesh& mesh, Parameter* tied)
      : Stage("head", mesh.tp(), mesh.tp_rank()),
        eps_(c.rms_norm_eps),
        mesh_(mesh),
        norm_(table_.add(SpecFactory(c).norm("model.norm.weight", c.hidden_size))),
        lm_head_(tied ? borrow(*tied)
                      : table_.add(SpecFactory(c).matrix("lm_head.weight", c.vocab_size,
                                                         c.hidden_size, 0))) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    const at::Tensor y = rms_norm(inputs[0], weight_of(norm_), eps_).y;
    return {vocab_parallel_loss(y, weight_of(lm_head_), lm_head_.box.offset[0],
                                batch.targets.reshape({-1}), batch.weights.reshape({-1}),
                                mesh_.tp_group())};
  }

 private:
  const double eps_;
  Mesh& mesh_;
  Parameter& norm_;
  Parameter& lm_head_;
};

}  // namespace

std::vector<std::unique_ptr<Stage>> make_llama(const LlamaConfig& config, int64_t seq_len,
                                               Mesh& mesh, const LlamaOptions& options) {
  const auto rope = std::make_shared<const RopeTable>(
      seq_len, config.head_dim(), config.rope_theta, options.buffers, mesh.device().torch_device());
  std::vector<std::unique_ptr<Stage>> stages;
  auto embedding = std::make_unique<EmbeddingStage>(config, mesh, options);
  Parameter* tied = config.tie_word_embeddings ? &embedding->embed_tokens() : nullptr;
  stages.push_back(std::move(embedding));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    stages.push_back(std::make_unique<BlockStage>(config, i, rope, mesh, options));
  stages.push_back(std::make_unique<HeadStage>(config, mesh, tied));
  return stages;
}

}  // namespace tessera
