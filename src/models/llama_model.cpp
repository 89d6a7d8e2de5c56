// Llama (Touvron et al. 2023; Grattafiori et al. 2024).
#include "models/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class LlamaModel : public DecoderModel {
 public:
  std::unique_ptr<Model> clone() const override { return std::make_unique<LlamaModel>(*this); }
  std::string type() const override { return "llama"; }

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
