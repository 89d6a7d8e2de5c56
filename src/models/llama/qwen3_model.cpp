// Qwen3 (Yang et al. 2025): Llama with RMSNorm of each head of q and k, and heads of their own
// width.
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class Qwen3Model : public DecoderModel {
 public:
  Qwen3Model() { config.qk_norm = true; }
  std::unique_ptr<Model> clone() const override { return std::make_unique<Qwen3Model>(*this); }
  std::string type() const override { return "qwen3"; }

  std::vector<Field> fields() override {
    std::vector<Field> fields = DecoderModel::fields();
    fields.push_back(attention_bias_field());
    return fields;
  }

 private:
  const char* architecture() const override { return "Qwen3ForCausalLM"; }
  int64_t default_kv_heads() const override { return 32; }
  int64_t default_max_positions() const override { return 32768; }
  void read_own(const HfConfig& hf) override {
    refuse_windows(hf);
    config.attention_bias = hf.flag_or("attention_bias", false);
    config.given_head_dim = hf.size_or("head_dim", 128);
  }
  void write_own(nlohmann::json& json) const override {
    json["use_sliding_window"] = false;
    json["attention_bias"] = config.attention_bias;
  }
};

}  // namespace

std::unique_ptr<Model> make_qwen3_model() {
  return std::make_unique<Qwen3Model>();
}

}  // namespace tessera
