#pragma once

#include <memory>
#include <vector>

#include "models/layers/activation.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"
#include "parallel/mesh.h"

namespace tessera {

// Hugging Face's names and meanings (ViTConfig).
struct VitConfig {
  int64_t image_size = 224;  // height and width
  int64_t patch_size = 16;
  int64_t num_channels = 3;
  int64_t num_labels = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  Activation hidden_act = Activation::kGelu;
  bool qkv_bias = true;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  double hidden_dropout = 0.0;     // hidden_dropout_prob there
  double attention_dropout = 0.0;  // attention_probs_dropout_prob

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  int64_t num_patches() const { return (image_size / patch_size) * (image_size / patch_size); }
  bool operator==(const VitConfig&) const = default;
};

// ViT (Dosovitskiy et al. 2021) as a chain of stages: patch embedding, num_hidden_layers blocks,
// head with loss; the same function as ViTForImageClassification. Parameters carry the names of
// Hugging Face's files. `mesh` outlives the stages.
//
// clang-format off
//   images [B, C, H, W] -> x [B*(P+1), D]: class token, then P patches, with learned positions
//   block: x -> x + attention.output(attention(query_key_value(layernorm_before(x))))
//            -> x + output(gelu(intermediate(layernorm_after(x))))
//   head:  x -> sum over images of weight * cross_entropy(classifier(layernorm(class token)), label)
// clang-format on
//
// Tensor parallelism T: query, key, value, intermediate by output rows (heads), the two outputs by
// input columns, the classifier by classes; embeddings, norms and the outputs' biases are whole on
// every rank. Under sequence parallelism each embeds its own tokens (their number, B*(P+1), divides
// by T) and the class tokens are collected before the head.
//
// Dropout, in a micro-batch that names its rows: on embeddings, on what the two layers of a block
// add, and on attention's probabilities.
std::vector<std::unique_ptr<Stage>> make_vit(const VitConfig& config, Mesh& mesh,
                                             const ModelOptions& options);

}  // namespace tessera
