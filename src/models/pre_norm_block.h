#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/activation.h"
#include "models/layers/rotary.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"

namespace tessera {

// The names of a block's layers in the files of Hugging Face, after the block's prefix.
struct BlockNames {
  std::string attention_norm;
  std::string q, k, v;
  std::string q_norm = {}, k_norm = {};
  std::string out;
  std::string mlp_norm;
  std::vector<std::string> up;  // with SwiGLU gate and up, else one
  std::string down;
  // The places where a block drops (layers/dropout.h): probabilities, outputs of `out` and `down`.
  std::string attention_dropout, out_dropout, down_dropout;
};

// What a pre-norm block is made of: sizes, and what tells one family from another.
struct BlockParts {
  BlockNames names;
  int64_t width;  // of the residual stream, H
  int64_t heads;
  int64_t kv_heads;  // divides heads
  int64_t head_dim;
  int64_t inner;  // of the feed-forward layer, F
  // Norms have a bias: LayerNorm, else RMSNorm.
  bool layer_norm;
  double norm_eps;
  bool qkv_bias;
  bool out_bias;
  bool mlp_bias;
  std::optional<Activation> activation;  // none: SwiGLU
  bool causal;
  int64_t window = 0;      // of causal: keys that a query reads; 0: all before it
  bool head_norm = false;  // RMSNorm of each head of q and k
  std::shared_ptr<const RopeTable> rope = {};  // null: positions come from elsewhere
  double std;                                  // of the initial weights
  double residual_std;                         // of `out` and `down`, which add to the residual
  double attention_dropout;
  double hidden_dropout;  // of what the two layers add
};

// A block of a transformer that normalises what each of its two layers reads (Xiong et al. 2020):
//
// clang-format off
//   x [n, H] -> x + out(attention(q, k, v(norm(x))))
//            -> x + down(activation(up(norm(x)))), or down(silu(gate) * up)
// clang-format on
//
// The B samples are those of the micro-batch's tokens, or images; x has all their tokens, under
// sequence parallelism this rank's. Tensor parallelism T: q, k, v, gate and up by output rows
// (heads; with fewer kv heads than T each is held by T / kv heads ranks), out and down by input
// columns; norms and the biases of out and down are whole on every rank.
//
// `name` of the stage, `prefix` of its parameters and dropout places.
std::unique_ptr<Stage> make_pre_norm_block(const std::string& name, const std::string& prefix,
                                           const BlockParts& parts, const TensorParallel& tp,
                                           const ModelOptions& options);

}  // namespace tessera
