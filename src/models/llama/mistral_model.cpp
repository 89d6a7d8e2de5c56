// Mistral (Jiang et al. 2023): Llama whose queries see the last `sliding_window` keys.
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class MistralModel : public Cloned<MistralModel, DecoderModel> {
 public:
  MistralModel()
      : Cloned({.type = "mistral",
                .architecture = "MistralForCausalLM",
                .max_positions = 131072,
                .kv_heads = 8,
                .token_ids = {{"bos_token_id", 1}, {"eos_token_id", 2}, {"pad_token_id", nullptr}},
                .sliding_window = HfKey{.left_out = 4096, .null = nullptr}}) {}

 private:
  void read_hf_rest(const HfConfig& hf) override {
    DecoderModel::read_hf_rest(hf);
    hf.require("layer_types", nullptr);
    hf.require("attention_bias", false);
  }
};

}  // namespace

std::unique_ptr<Model> make_mistral_model() {
  return std::make_unique<MistralModel>();
}

}  // namespace tessera
