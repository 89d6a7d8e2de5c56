#pragma once

#include <string>
#include <vector>

#include "models/llama/llama_config.h"
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
  void check(int64_t seq_len, RuleReport& report) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t seq_len, Mesh& mesh,
                                                  const ModelOptions& options) const override;
  void read_hf_config(const HfConfig& hf) override;
  nlohmann::json hf_config(int64_t seq_len) const override;
  nlohmann::json hf_defaults() const override;
  HfTensors hf_tensors() const override;

 protected:
  Field sliding_window_field();
  Field attention_bias_field();
  nlohmann::json sliding_window_json() const;  // null: none
  // UserError for windows that only some of the layers have.
  static void refuse_windows(const HfConfig& hf);

  // The class of transformers, such as LlamaForCausalLM.
  virtual const char* architecture() const = 0;
  // What its class takes where a config.json leaves the key out: the number of kv heads, the
  // longest context, and the ids of tokens (null: none).
  virtual int64_t default_kv_heads() const { return config.num_attention_heads; }
  virtual int64_t default_max_positions() const = 0;
  virtual nlohmann::json default_token_ids() const {
    return {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}};
  }
  // What else its config.json may say: read it or refuse it.
  virtual void read_own(const HfConfig& hf) = 0;
  virtual void write_own(nlohmann::json& json) const = 0;
};

}  // namespace tessera
