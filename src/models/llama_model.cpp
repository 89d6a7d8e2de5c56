// Llama (Touvron et al. 2023; Grattafiori et al. 2024).
#include "base/divisors.h"
#include "base/error.h"
#include "models/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class LlamaModel : public DecoderModel {
 public:
  std::unique_ptr<Model> clone() const override { return std::make_unique<LlamaModel>(*this); }
  std::string type() const override { return "llama"; }

  void check(int64_t seq_len) const override {
    DecoderModel::check(seq_len);
    // A rule of its class in transformers, which could not load the export else.
    if (config.hidden_size % config.num_attention_heads != 0)
      fail_user(
          "config",
          "model.num_attention_heads: {}; must divide model.hidden_size {} in a llama, whatever "
          "head_dim is; these would: {}; mistral and qwen3 have no such rule",
          config.num_attention_heads, config.hidden_size, divisors(config.hidden_size));
  }

 private:
  const char* architecture() const override { return "LlamaForCausalLM"; }
  void read_own(const HfConfig& hf) override {
    for (const char* key : {"attention_bias", "mlp_bias"})
      if (hf.flag_or(key, false))
        hf.refuse(key, true, "linear layers with a bias are not supported");
  }
  void write_own(nlohmann::json& json) const override {
    json["attention_bias"] = false;
    json["mlp_bias"] = false;
  }
};

}  // namespace

std::unique_ptr<Model> make_llama_model() {
  return std::make_unique<LlamaModel>();
}

}  // namespace tessera
