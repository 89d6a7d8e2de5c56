// Llama (Touvron et al. 2023; Grattafiori et al. 2024).
#include "base/divisors.h"
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class LlamaModel : public Cloned<LlamaModel, DecoderModel> {
 public:
  LlamaModel()
      : Cloned({.type = "llama",
                .architecture = "LlamaForCausalLM",
                .max_positions = 2048,
                .token_ids = {{"bos_token_id", 1}, {"eos_token_id", 2}, {"pad_token_id", nullptr}},
                .attention_bias = true}) {}

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
  void write_hf_rest(int64_t seq_len, nlohmann::json& json) const override {
    DecoderModel::write_hf_rest(seq_len, json);
    json["mlp_bias"] = false;
  }
};

}  // namespace

std::unique_ptr<Model> make_llama_model() {
  return std::make_unique<LlamaModel>();
}

}  // namespace tessera
