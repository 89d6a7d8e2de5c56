#include "models/decoder.h"

#include <ATen/ATen.h>

#include "models/layers/dropout.h"
#include "models/layers/layer_table.h"
#include "models/vocab_head.h"
#include "parallel/tensor_parallel/vocab_embedding.h"

namespace tessera {
namespace {

class EmbeddingStage : public Stage {
 public:
  EmbeddingStage(const DecoderParts& parts, const TensorParallel& tp, const ModelOptions& options)
      : Stage("embedding", tp.size(), tp.rank()),
        tp_(tp),
        activations_(options.activations),
        dropout_(parts.embedding_dropout, options.seed, parts.embedding),
        layers_(table_, "", parts.block.std, tp.sequence_parallel()),
        words_(layers_.matrix(parts.embedding + ".weight", {parts.vocab_size, parts.block.width},
                              Placement::uneven_shard(0))),
        positions_(parts.position_count > 0
                       ? &layers_.matrix(parts.positions + ".weight",
                                         {parts.position_count, parts.block.width},
                                         Placement::replicate())
                       : nullptr) {}

  TensorList forward(const TensorList&, const MicroBatch& batch) override {
    at::Tensor x = vocab_parallel_embedding(batch.tokens, words_, tp_, activations_);
    if (positions_) {
      const at::Tensor place =
          tp_.own_positions(batch.tokens.size(0), batch.tokens.size(1), batch.tokens.options());
      x = x + positions_->value.index_select(0, place).to(activations_);
    }
    return {dropout(x, dropout_, batch.rows, tp_)};
  }

  bool backward_reads_parameters() const override { return false; }

  Parameter& words() { return words_; }

 private:
  const TensorParallel tp_;
  const at::ScalarType activations_;
  const DropoutPlace dropout_;
  const LayerTable layers_;
  Parameter& words_;
  Parameter* const positions_;  // null: none
};

class HeadStage : public Stage {
 public:
  // `tied`: the embedding's parameter, if the model ties the two, else null.
  HeadStage(const DecoderParts& parts, const TensorParallel& tp, Parameter* tied)
      : Stage("head", tp.size(), tp.rank()),
        tp_(tp),
        layers_(table_, "", parts.block.std, tp.sequence_parallel()),
        norm_(layers_.norm(parts.norm, parts.block.width, parts.block.norm_eps,
                           parts.block.layer_norm)),
        lm_head_(tied ? borrow(*tied)
                      : layers_.matrix("lm_head.weight", {parts.vocab_size, parts.block.width},
                                       Placement::uneven_shard(0))) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    return {vocab_head_loss(norm_(inputs[0]).y, lm_head_, batch, tp_)};
  }

  int64_t logits_bytes(int64_t tokens) const override {
    return vocab_head_bytes(lm_head_, tokens, tp_);
  }

 private:
  const TensorParallel tp_;
  const LayerTable layers_;
  const Norm norm_;
  Parameter& lm_head_;
};

}  // namespace

std::vector<std::unique_ptr<Stage>> make_decoder(const DecoderParts& parts, Mesh& mesh,
                                                 const ModelOptions& options) {
  const TensorParallel tp(mesh, options.tensor_parallel);
  std::vector<std::unique_ptr<Stage>> stages;
  auto embedding = std::make_unique<EmbeddingStage>(parts, tp, options);
  Parameter* tied = parts.tied ? &embedding->words() : nullptr;
  stages.push_back(std::move(embedding));
  for (int64_t i = 0; i < parts.block_count; ++i) {
    const std::string number = std::to_string(i);
    stages.push_back(make_pre_norm_block("block " + number, parts.blocks + "." + number + ".",
                                         parts.block, tp, options));
  }
  stages.push_back(std::make_unique<HeadStage>(parts, tp, tied));
  return stages;
}

}  // namespace tessera
