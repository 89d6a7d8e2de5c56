#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/store/manager.h"
#include "checkpoint/store/reader.h"
#include "models/llama/decoder_model.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "support/temporary_folder.h"
#include "training/train.h"

namespace tessera {

// A run of the real train() on thread ranks, small enough for hundreds of them in a test.

inline constexpr double kLearningRate = 1e-3;

// 64-token vocabulary, 2 layers, 8 heads on 4 kv heads: every tensor divides by tp 4.
inline LlamaConfig tiny_model() {
  LlamaConfig model;
  model.hidden_size = 64;
  model.intermediate_size = 96;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  model.vocab_size = 64;
  model.initializer_range = 0.05;
  return model;
}

// The sizes of a configuration's model, of Llama or a relative.
inline LlamaConfig& sizes(Config& config) {
  return dynamic_cast<DecoderModel&>(*config.model).config;
}

// PREFIX.bin/.idx of one document whose token i is (7i + 3 + i/16) mod 64.
void write_tokens(const std::string& prefix, int64_t count);

// Ten steps of 16 samples of 16 tokens with clipping, warm-up and decay, in folder/NAME.
Config tiny_config(const TemporaryFolder& folder, const std::string& name);

struct TinyRun {
  TrainOutcome outcome = TrainOutcome::kDone;
  std::vector<nlohmann::json> steps;  // the training lines of metrics.jsonl
  std::vector<nlohmann::json> evals;
  std::vector<nlohmann::json> events;  // rollbacks
  std::vector<nlohmann::json> files;   // saves and loads
};

// Trains on dp_replicate x dp_shard x tp thread ranks (as the configuration says) and reads the
// metrics.
TinyRun run(const Config& config, const TrainHooks& hooks = {});

// Every state that a tensor has, of every tensor of a checkpoint, by "tensor/state".
std::map<std::string, std::vector<double>> read_states(const Config& config, int64_t step);

// Loss and gradient norm of every step within `tolerance` relative, samples and lr equal.
void expect_close(const TinyRun& run, const TinyRun& reference, double tolerance);

// Loss, gradient norm, lr and samples bit for bit.
void expect_identical(const TinyRun& run, const TinyRun& reference);

// What expect_weights_close() takes for rounding, of a gradient relative to the model's mean one.
inline constexpr double kGradientRounding32 = 2e-7, kGradientRounding64 = 4e-16;

// ||difference|| / max(||w||, lr * steps * sqrt(n)) <= tolerance for every parameter tensor. The
// second term: AdamW moves an element by lr, however small its weight and its gradient.
//
// AdamW divides a gradient by its own size, so a gradient that nearly vanishes makes a step of its
// rounding errors: its element is determined the less, the smaller the gradient. Rounding errors
// are about `rounding` of the model's mean gradient R (root mean square), whatever is left of the
// terms that cancel; where a gradient is smaller than rounding * R / tolerance (1 % of R in fp32),
// the difference counts in proportion to the gradient, which the larger of both runs' second
// moments tells. Only a bias of keys has such gradients: softmax does not see what moves all scores
// of a query alike, and rotation leaves almost that of a bias's slow dimensions. That there are no
// others is checked as well.
void expect_weights_close(const std::map<std::string, std::vector<double>>& run,
                          const std::map<std::string, std::vector<double>>& reference,
                          int64_t steps, double tolerance, double rounding = kGradientRounding32);

}  // namespace tessera
