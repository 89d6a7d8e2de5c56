#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/load.h"
#include "models/llama/decoder_model.h"
#include "support/temporary_folder.h"

namespace tessera::testing {

// The names that the project promises, exactly as they are promised.
inline constexpr const char* kContract = R"yaml(
run: {dir: runs/quickstart, seed: 42}
device: cpu                      # cpu | cuda
model: {type: llama, hidden_size: 256, intermediate_size: 688, num_hidden_layers: 4, num_attention_heads: 8,
        num_key_value_heads: 4, vocab_size: 256, rope_theta: 10000.0, rms_norm_eps: 1.0e-5,
        tie_word_embeddings: false, initializer_range: 0.02}
parallel: {tp: 2, dp_shard: auto, dp_replicate: 1, zero: 3}
precision: {params: fp32, reduce: fp32}
memory: {recompute: none}
data: {train: [data/bible], valid: [data/bible-valid], seq_len: 256}     # prefixes of .bin/.idx pairs
training: {steps: 200, global_batch_size: 8, micro_batch_size: 2, clip_grad_norm: 1.0, log_every: 1,
           stop_after: 100,      # optional: save and stop there as if asked to, schedule unchanged
           log_samples: true}    # optional: the ids of each global batch in metrics.jsonl
optimizer: {type: adamw, lr: 1.0e-3, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}
schedule: {type: cosine, warmup_steps: 20, min_lr_ratio: 0.1}
eval: {every: 50, batches: 8}
checkpoint: {every: 50, keep: 3, resume: auto}
)yaml";

// Only what is required.
inline constexpr const char* kMinimal = R"yaml(run:
  dir: runs/x
model:
  type: llama
  hidden_size: 64
  intermediate_size: 192
  num_hidden_layers: 2
  num_attention_heads: 4
  vocab_size: 256
data:
  train: [data/a]
  seq_len: 32
training:
  steps: 100
  global_batch_size: 8
)yaml";

// The sizes of a configuration's model, of Llama or a relative.
inline const LlamaConfig& sizes(const Config& config) {
  return dynamic_cast<const DecoderModel&>(*config.model).config;
}
inline LlamaConfig& sizes(Config& config) {
  return dynamic_cast<DecoderModel&>(*config.model).config;
}

// A folder for configuration files.
class TempDir : public TemporaryFolder {
 public:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
    return *this / name;
  }
};

inline Config load_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const TempDir dir;
  return load_config(dir.write("c.yaml", text), overrides);
}

// The minimal configuration with overrides.
inline Config minimal(const std::vector<std::string>& overrides = {}) {
  return load_text(kMinimal, overrides);
}

// Runs `body`, which must throw a UserError whose message has every part.
template <typename Body>
void expect_user_error(Body body, const std::vector<std::string>& parts, const std::string& label) {
  SCOPED_TRACE(label);
  try {
    body();
  } catch (const UserError& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
    }
    return;
  } catch (const std::exception& error) {
    FAIL() << "not a UserError: " << error.what();
  }
  FAIL() << "nothing was thrown";
}

}  // namespace tessera::testing
