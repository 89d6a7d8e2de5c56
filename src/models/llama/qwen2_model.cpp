// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases of q, k and v.
#include "models/llama/decoder_model.h"
#include "models/model_list.h"

namespace tessera {
namespace {

class Qwen2Model : public DecoderModel {
 public:
  Qwen2Model() { config.qkv_bias = true; }
  std::unique_ptr<Model> clone() const override { return std::make_unique<Qwen2Model>(*this); }
  std::string type() const override { return "qwen2"; }

 private:
  const char* architecture() const override { return "Qwen2ForCausalLM"; }
  int64_t default_kv_heads() const override { return 32; }
  int64_t default_max_positions() const override { return 32768; }
  void read_own(const HfConfig& hf) override { refuse_windows(hf); }
  void write_own(nlohmann::json& json) const override { json["use_sliding_window"] = false; }
};

}  // namespace

std::unique_ptr<Model> make_qwen2_model() {
  return std::make_unique<Qwen2Model>();
}

}  // namespace tessera
