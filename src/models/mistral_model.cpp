// Mistral (Jiang et al. 2023): Llama whose queries see the last `sliding_window` keys.
#include "models/decoder_model.h"
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

  void read_own(const HfConfig& hf) override {
    // Left out, it is transformers' 4096; null means none.
    config.sliding_window =
        hf.json().contains("sliding_window") ? hf.size_or("sliding_window", 0) : 4096;
    hf.require("layer_types", nullptr);
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
