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
                .attention_bias = true}) {
    config.qk_norm = true;
  }

 private:
  void read_hf_rest(const HfConfig& hf) override {
    DecoderModel::read_hf_rest(hf);
    refuse_windows(hf);
  }
  void write_hf_rest(int64_t seq_len, nlohmann::json& json) const override {
    DecoderModel::write_hf_rest(seq_len, json);
    json["use_sliding_window"] = false;
  }
};

}  // namespace

std::unique_ptr<Model> make_qwen3_model() {
  return std::make_unique<Qwen3Model>();
}

}  // namespace tessera
