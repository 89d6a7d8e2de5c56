// Qwen3 (Yang et al. 2025): Llama with RMSNorm of each head of q and k, and heads of their own
// width.
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class Qwen3Model : public Cloned<Qwen3Model, DecoderModel> {
 public:
  Qwen3Model()
      : Cloned({.type = "qwen3",
                .architecture = "Qwen3ForCausalLM",
                .max_positions = 32768,
                .kv_heads = 32,
                .head_dim = {.left_out = 128},
                .layer_windows = true,
                .attention_bias = true}) {
    config.qk_norm = true;
  }
};

}  // namespace

std::unique_ptr<Model> make_qwen3_model() {
  return std::make_unique<Qwen3Model>();
}

}  // namespace tessera
