// Llama (Touvron et al. 2023; Grattafiori et al. 2024).
#include "base/divisors.h"
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class LlamaModel : public DecoderModel {
 public:
  std::unique_ptr<Model> clone() const override { return std::make_unique<LlamaModel>(*this); }
  std::string type() const override { return "llama"; }

  std::vector<Field> fields() override {
    std::vector<Field> fields = DecoderModel::fields();
    fields.push_back(attention_bias_field());
    return fields;
  }

  void check(int64_t seq_len, RuleReport& report) const override {
    DecoderModel::check(seq_len, report);
    // A rule of its class in transformers, which could not load the export else.
    if (config.given_head_dim != 0 && config.hidden_size % config.num_attention_heads != 0)
      report.broken(
          {"model.num_attention_heads", "model.hidden_size"},
          "model.num_attention_heads: {}; must divide model.hidden_size {} in a llama, whatever "
          "head_dim is; these would: {}; mistral and qwen3 have no such rule",
          config.num_attention_heads, config.hidden_size, divisors(config.hidden_size));
  }

 private:
  const char* architecture() const override { return "LlamaForCausalLM"; }
  int64_t default_max_positions() const override { return 2048; }
  nlohmann::json default_token_ids() const override {
    return {{"bos_token_id", 1}, {"eos_token_id", 2}, {"pad_token_id", nullptr}};
  }
  void read_own(const HfConfig& hf) override {
    config.attention_bias = hf.flag_or("attention_bias", false);
  }
  void write_own(nlohmann::json& json) const override {
    json["attention_bias"] = config.attention_bias;
    json["mlp_bias"] = false;
  }
};

}  // namespace

std::unique_ptr<Model> make_llama_model() {
  return std::make_unique<LlamaModel>();
}

}  // namespace tessera
