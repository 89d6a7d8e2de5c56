// Phi-3 (Abdin et al. 2024) with contexts of up to 4096 tokens: Llama, with a sliding window, whose
// files hold q, k, v and gate, up in one matrix each.
#include <fmt/format.h>

#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class Phi3Model : public Cloned<Phi3Model, DecoderModel> {
 public:
  Phi3Model()
      : Cloned(
            {.type = "phi3",
             .architecture = "Phi3ForCausalLM",
             .max_positions = 4096,
             .rms_norm_eps = 1.0e-5,
             .token_ids = {{"bos_token_id", 1}, {"eos_token_id", 32000}, {"pad_token_id", 32000}},
             // Its class in transformers knows longrope alone, which is not supported here.
             .rope_scaling = false,
             .sliding_window = HfKey{.left_out = nullptr, .null = nullptr},
             .hidden_dropout = HfKey{.name = "resid_pdrop", .left_out = 0.0},
             .embedding_dropout = HfKey{.name = "embd_pdrop", .left_out = 0.0}}) {}

  HfTensors hf_tensors() const override {
    HfTensors names = DecoderModel::hf_tensors();
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      const std::string layer = fmt::format("model.layers.{}.", i);
      names.tensors.push_back(
          {layer + "self_attn.qkv_proj.weight",
           {layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
            layer + "self_attn.v_proj.weight"}});
      names.tensors.push_back({layer + "mlp.gate_up_proj.weight",
                               {layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight"}});
    }
    return names;
  }

 private:
  void read_hf_rest(const HfConfig& hf) override {
    DecoderModel::read_hf_rest(hf);
    if (config.rope_scaling.type != RopeScalingType::kNone) {
      const char* const key = hf.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
      hf.refuse(key, hf.json()[key],
                "Phi-3 has rotary positions as they are, or longrope, which is not supported");
    }
    hf.require("attention_bias", false);
  }
  void write_hf_rest(int64_t seq_len, nlohmann::json& json) const override {
    DecoderModel::write_hf_rest(seq_len, json);
    json["pad_token_id"] = nullptr;  // its class's default lies outside of small vocabularies
  }
};

}  // namespace

std::unique_ptr<Model> make_phi3_model() {
  return std::make_unique<Phi3Model>();
}

}  // namespace tessera
