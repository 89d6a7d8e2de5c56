// Whole runs of the smallest models against what can be said of them beforehand.
#include <gtest/gtest.h>

#include <cmath>

#include "data/pack.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

// 16-token vocabulary, hidden 8, 2 layers, 2 heads; 4096 tokens (7i + 3) mod 16 in samples of 8.
Config smallest(const TemporaryFolder& folder, const std::string& name, int64_t vocab = 16) {
  Config config = tiny_config(folder, name);
  LlamaConfig& model = sizes(config);
  model.hidden_size = 8;
  model.intermediate_size = 16;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 2;
  model.vocab_size = vocab;
  const std::string prefix = folder / ("tokens-" + std::to_string(vocab));
  if (!std::filesystem::exists(prefix + ".idx")) {
    std::ofstream out(prefix + ".txt", std::ios::binary);
    for (int64_t i = 0; i < 4096; ++i) out.put(static_cast<char>((7 * i + 3) % vocab));
    out.close();
    pack_bytes({prefix + ".txt"}, prefix, {.any_bytes = true});
  }
  config.data.train = {prefix};
  config.data.seq_len = 8;
  return config;
}

// Known fault N17: the same job twice gave two traces.
TEST(KnownNumbers, TheSameJobTwiceIsTheSameBits) {
  for (const auto& [dp, tp] : {std::pair{2, 1}, {1, 2}}) {
    TemporaryFolder folder;
    Config config = smallest(folder, "first");
    config.parallel.dp_shard = dp;
    config.parallel.tp = tp;
    config.training.steps = 20;
    const TinyRun first = run(config);
    const auto states = read_states(config, 20);
    config.run.dir = folder / "second";
    expect_identical(run(config), first);
    EXPECT_EQ(read_states(config, 20), states);
  }
}

// Known fault N01: rows that only pad the vocabulary took part in the softmax, and went into files.
TEST(KnownNumbers, PaddedVocabularyCostsNothingAndReloadsOnAnyTp) {
  TemporaryFolder folder;
  const auto config_of = [&](const std::string& name, int tp) {
    Config config = smallest(folder, name, 5);
    sizes(config).hidden_size = 24;
    sizes(config).intermediate_size = 12;
    sizes(config).num_attention_heads = sizes(config).num_key_value_heads = 6;
    config.training.steps = 4;
    config.parallel.tp = tp;
    return config;
  };
  // All weights but the norms' are 0, so each token costs ln 5; with one such row, ln 6.
  Config zero = config_of("zero", 2);
  sizes(zero).initializer_range = 0.0;
  EXPECT_NEAR(run(zero).steps[0].at("loss").get<double>(), std::log(5.0), 1e-6);

  const TinyRun whole = run(config_of("whole", 1));
  Config config = config_of("parts", 2);
  config.training.stop_after = 2;
  run(config);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
    EXPECT_EQ(read_states(config, 2).at(std::string(name) + "/param").size(), 5U * 24U);
  config.training.stop_after.reset();
  config.parallel.tp = 3;
  expect_close(run(config), whole, 1e-5);
}

}  // namespace
}  // namespace tessera
