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
                .kv_heads = 32}) {
    config.qkv_bias = true;
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

std::unique_ptr<Model> make_qwen2_model() {
  return std::make_unique<Qwen2Model>();
}

}  // namespace tessera
