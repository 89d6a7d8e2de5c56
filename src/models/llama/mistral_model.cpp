// Mistral (Jiang et al. 2023): Llama whose queries see the last `sliding_window` keys.
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class MistralModel : public DecoderModel {
 public:
  std::unique_ptr<Model> clone() const override { return std::make_unique<MistralModel>(*this); }
  std::string type() const override { return "mistral"; }

  std::vector<Field> fields() override {
    std::vector<Field> fields = DecoderModel::fields();
    fields.push_back(sliding_window_field());
    return fields;
  }

 private:
  const char* architecture() const override { return "MistralForCausalLM"; }
  int64_t default_kv_heads() const override { return 8; }
  int64_t default_max_positions() const override { return 131072; }
  nlohmann::json default_token_ids() const override {
    return {{"bos_token_id", 1}, {"eos_token_id", 2}, {"pad_token_id", nullptr}};
  }

  void read_own(const HfConfig& hf) override {
    // Left out, it is transformers' 4096; null means none.
    config.sliding_window = !hf.json().contains("sliding_window") ? 4096
                            : hf.has("sliding_window")            ? hf.size("sliding_window")
                                                                  : 0;
    hf.require("layer_types", nullptr);
    hf.require("attention_bias", false);
  }
  void write_own(nlohmann::json& json) const override {
    json["sliding_window"] = sliding_window_json();
  }
};

}  // namespace

std::unique_ptr<Model> make_mistral_model() {
  return std::make_unique<MistralModel>();
}

}  // namespace tessera
