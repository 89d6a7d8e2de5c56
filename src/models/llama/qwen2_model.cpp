// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases of q, k and v.
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class Qwen2Model : public Cloned<Qwen2Model, DecoderModel> {
 public:
  Qwen2Model()
      : Cloned({.type = "qwen2",
                .architecture = "Qwen2ForCausalLM",
                .max_positions = 32768,
                .kv_heads = 32,
                .layer_windows = true}) {
    config.qkv_bias = true;
  }
};

}  // namespace

std::unique_ptr<Model> make_qwen2_model() {
  return std::make_unique<Qwen2Model>();
}

}  // namespace tessera
