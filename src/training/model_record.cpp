#include "training/model_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "config/hf_config.h"
#include "models/llama.h"
#include "parallel/comm/self_communicator.h"

namespace tessera {

nlohmann::json hf_config_of(const LlamaConfig& config, int64_t seq_len) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_hidden_layers", config.num_hidden_layers},
          {"num_attention_heads", config.num_attention_heads},
          {"num_key_value_heads", config.num_key_value_heads},
          {"head_dim", config.head_dim()},
          {"vocab_size", config.vocab_size},
          {"max_position_embeddings", seq_len},
          {"rope_theta", config.rope_theta},
          {"rms_norm_eps", config.rms_norm_eps},
          {"tie_word_embeddings", config.tie_word_embeddings},
          {"initializer_range", config.initializer_range},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"attention_dropout", config.attention_dropout},
          {"use_cache", true},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

std::vector<TensorInfo> llama_tensors(const LlamaConfig& config) {
  Mesh mesh({1, 1, 1}, make_self_communicator());
  std::vector<TensorInfo> tensors;
  for (const auto& stage : make_llama(config, /*seq_len=*/1, mesh, {}))
    for (const auto& parameter : stage->table().parameters())
      tensors.push_back({parameter.spec.name, parameter.spec.shape});
  return tensors;
}

void check_same_model(const nlohmann::json& recorded, const LlamaConfig& config,
                      const std::filesystem::path& step_dir) {
  LlamaConfig there = llama_config_from_hf(recorded, step_dir.string());
  // How the weights came about is past once they are there.
  there.initializer_range = config.initializer_range;
  there.attention_dropout = config.attention_dropout;
  there.hidden_dropout = config.hidden_dropout;
  there.embedding_dropout = config.embedding_dropout;
  if (there == config) return;
  const nlohmann::json then = hf_config_of(there, 0), now = hf_config_of(config, 0);
  std::vector<std::string> differences;
  for (const auto& [key, value] : then.items())
    if (value != now[key])
      differences.push_back(fmt::format("model.{}: {} there, {} in the configuration", key,
                                        value.dump(), now[key].dump()));
  fail_user("train", "{} holds another model:\n  {}\nmake the configuration agree with it",
            step_dir.string(), fmt::join(differences, "\n  "));
}

}  // namespace tessera
