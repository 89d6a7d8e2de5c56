// Phi-3 (Abdin et al. 2024) with contexts of up to 4096 tokens: Llama, with a sliding window, whose
// files hold q, k, v and gate, up in one matrix each.
#include <fmt/format.h>

#include "base/fields/field_kinds.h"
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class Phi3Model : public DecoderModel {
 public:
  std::unique_ptr<Model> clone() const override { return std::make_unique<Phi3Model>(*this); }
  std::string type() const override { return "phi3"; }

  std::vector<Field> fields() override {
    std::vector<Field> fields = DecoderModel::fields();
    // Its class in transformers knows longrope alone, which is not supported here.
    std::erase_if(fields, [](const Field& field) {
      return field.name.starts_with("rope_") && field.name != "rope_theta";
    });
    fields.push_back(sliding_window_field());
    return fields;
  }

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
  const char* architecture() const override { return "Phi3ForCausalLM"; }
  int64_t default_max_positions() const override { return 4096; }
  nlohmann::json default_token_ids() const override {
    return {{"bos_token_id", 1}, {"eos_token_id", 32000}, {"pad_token_id", 32000}};
  }
  void read_own(const HfConfig& hf) override {
    if (!hf.has("rms_norm_eps")) config.rms_norm_eps = 1.0e-5;
    if (config.rope_scaling.type != RopeScalingType::kNone) {
      const char* const key = hf.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
      hf.refuse(key, hf.json()[key],
                "Phi-3 has rotary positions as they are, or longrope, which is not supported");
    }
    config.sliding_window = hf.has("sliding_window") ? hf.size("sliding_window") : 0;
    config.hidden_dropout = hf.rate_or("resid_pdrop", 0.0);
    config.embedding_dropout = hf.rate_or("embd_pdrop", 0.0);
    hf.require("attention_bias", false);
  }
  void write_own(nlohmann::json& json) const override {
    json["sliding_window"] = sliding_window_json();
    json["resid_pdrop"] = config.hidden_dropout;
    json["embd_pdrop"] = config.embedding_dropout;
    json["pad_token_id"] = nullptr;  // its class's default lies outside of small vocabularies
  }
};

}  // namespace

std::unique_ptr<Model> make_phi3_model() {
  return std::make_unique<Phi3Model>();
}

}  // namespace tessera
