#pragma once

#include <string>
#include <vector>

#include "models/llama_config.h"
#include "models/model.h"

namespace tessera {

// What Llama and its relatives share: keys, rules, Hugging Face's config.json, the stages. A model
// of the family says what differs.
class DecoderModel : public Model {
 public:
  LlamaConfig config;

  ModelInput input() const override {
    return {.kind = DataKind::kTokens, .vocab_size = config.vocab_size};
  }
  std::vector<Field> fields() override;
  void complete() override;
  void check(int64_t seq_len) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t seq_len, Mesh& mesh,
                                                  const ModelOptions& options) const override;
  void read_hf_config(const HfConfig& hf) override;
  nlohmann::json hf_config(int64_t seq_len) const override;
  HfTensors hf_tensors() const override;

 protected:
  Field sliding_window_field();
  nlohmann::json sliding_window_json() const;  // null: none
  // UserError for windows that only some of the layers have.
  static void refuse_windows(const HfConfig& hf);

  // The class of transformers, such as LlamaForCausalLM.
  virtual const char* architecture() const = 0;
  // The number of kv heads in a config.json that does not say.
  virtual int64_t default_kv_heads() const { return config.num_attention_heads; }
  // What else its config.json may say: read it or refuse it.
  virtual void read_own(const HfConfig& hf) = 0;
  virtual void write_own(nlohmann::json& json) const = 0;
};

}  // namespace tessera
