#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/llama/llama_config.h"
#include "models/model.h"

namespace tessera {

// What tells a relative of Llama from the others beside the switches of LlamaConfig: its class of
// transformers, which is also asked what it takes where a config.json leaves a key out.
struct DecoderTraits {
  std::string type;          // in the registry
  std::string architecture;  // such as LlamaForCausalLM
  int64_t max_positions;     // the longest context
  int64_t kv_heads = 0;      // 0: as many as query heads
  HfKey head_dim = {.left_out = nullptr, .null = nullptr};
  double rms_norm_eps = 1.0e-6;
  nlohmann::json token_ids = {  // null: none
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"pad_token_id", nullptr}};
  // Keys that not all have, here or there.
  bool rope_scaling = true;
  bool layer_windows = false;  // a sliding window of some layers alone, which is refused
  bool attention_bias = false;
  std::optional<HfKey> sliding_window = {};
  std::optional<HfKey> hidden_dropout = {};
  std::optional<HfKey> embedding_dropout = {};
};

// What Llama and its relatives share: keys, rules, Hugging Face's config.json, the stages. A model
// of the family says what differs.
class DecoderModel : public Model {
 public:
  LlamaConfig config;

  explicit DecoderModel(DecoderTraits traits) : traits_(std::move(traits)) {}

  std::string type() const override { return traits_.type; }
  ModelInput input() const override {
    return {.kind = DataKind::kTokens, .vocab_size = config.vocab_size};
  }
  std::vector<ModelKey> keys() override;
  void complete() override;
  void check(int64_t seq_len, RuleReport& report) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t seq_len, Mesh& mesh,
                                                  const ModelOptions& options) const override;
  nlohmann::json hf_defaults() const override;
  std::string hf_context_key() const override { return "max_position_embeddings"; }
  HfTensors hf_tensors() const override;

 protected:
  void read_hf_rest(const HfConfig& hf) override;
  void write_hf_rest(int64_t seq_len, nlohmann::json& json) const override;

 private:
  DecoderTraits traits_;
};

}  // namespace tessera
