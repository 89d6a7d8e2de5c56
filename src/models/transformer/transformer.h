#pragma once

#include <memory>
#include <vector>

#include "models/layers/activation.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"
#include "parallel/mesh.h"

namespace tessera {

// The names and meanings of torch.nn.Transformer's arguments.
struct TransformerConfig {
  int64_t d_model = 0;
  int64_t nhead = 0;
  int64_t num_encoder_layers = 0;
  int64_t num_decoder_layers = 0;
  int64_t dim_feedforward = 0;
  Activation activation = Activation::kRelu;  // relu or gelu
  bool norm_first = false;
  double layer_norm_eps = 1e-5;
  // Not there: the embeddings and the output projection around it.
  int64_t vocab_size = 0;            // of both sides
  bool tie_word_embeddings = false;  // one matrix for both embeddings and the output
  double initializer_range = 0.02;
  // torch.nn.Transformer's one `dropout` is all three; the paper drops by the first alone.
  double hidden_dropout = 0.0;      // of embeddings, and of what each sublayer adds
  double attention_dropout = 0.0;   // of attention's probabilities
  double activation_dropout = 0.0;  // of what the activation of a feed-forward layer gives

  int64_t head_dim() const { return d_model / nhead; }
  bool operator==(const TransformerConfig&) const = default;
};

// The encoder-decoder Transformer (Vaswani et al. 2017) as a chain of stages, the same function as
// torch.nn.Transformer between token embeddings and an output projection without bias. `mesh`
// outlives the stages.
//
// clang-format off
//   embed(t) = sqrt(d_model) * embedding[t] + sines and cosines of the position
//   source embedding   source [B, S'] -> h [B*S', E]
//   encoder layer      h -> sublayers self-attention (keys: the source's tokens), feed-forward
//   target embedding   h -> [x [B*S, E], memory = encoder.norm(h)]
//   decoder layer      [x, memory] -> causal self-attention, cross-attention (keys: as above),
//                      feed-forward; memory goes on as it is
//   head               [x, memory] -> sum of weight * cross_entropy(decoder.norm(x) W^T, target)
//   a sublayer f       norm_first: x + f(norm(x)); else norm(x + f(x))
// clang-format on
//
// Padding ends the rows, so causal targets before it never see it, and its own targets weigh 0; of
// the source it is masked (MicroBatch::source_lengths).
//
// Tensor parallelism T: q, k, v and linear1 by output rows (heads), out_proj and linear2 by input
// columns, embeddings and output by vocabulary; norms and the biases after a sum are whole on every
// rank. Parameters are named as in torch.nn.Transformer, with in_proj cut into q_proj, k_proj and
// v_proj. Under sequence parallelism T divides both B*S' and B*S; memory, too, lies split between
// the decoder's layers, and each gathers it for its keys and values.
std::vector<std::unique_ptr<Stage>> make_transformer(const TransformerConfig& config, Mesh& mesh,
                                                     const ModelOptions& options);

// Positions 0 .. count-1 as [count, width] of fp64: columns 2i and 2i+1 are sine and cosine of
// position / 10000^(2i / width).
at::Tensor sinusoidal_positions(int64_t count, int64_t width);

}  // namespace tessera
