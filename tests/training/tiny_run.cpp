#include "training/tiny_run.h"

#include <cmath>

#include "data/pack.h"

namespace tessera {

void write_tokens(const std::string& prefix, int64_t count) {
  {
    std::ofstream out(prefix + ".txt", std::ios::binary);
    for (int64_t i = 0; i < count; ++i) out.put(static_cast<char>((7 * i + 3 + i / 16) % 64));
  }
  pack_bytes({prefix + ".txt"}, prefix, {.any_bytes = true, .replace = true});
}

Config tiny_config(const TemporaryFolder& folder, const std::string& name) {
  const std::string prefix = folder / "tokens";
  if (!std::filesystem::exists(prefix + ".idx")) write_tokens(prefix, 100 * 16 + 1);
  Config config;
  config.run.dir = folder / name;
  config.run.seed = 42;
  sizes(config) = tiny_model();
  config.data.train = {prefix};
  config.data.seq_len = 16;
  config.training.steps = 10;
  config.training.global_batch_size = 16;
  config.training.micro_batch_size = 4;
  config.training.clip_grad_norm = 0.5;
  config.training.log_every = 0;
  config.training.log_samples = true;
  config.optimizer.lr = kLearningRate;
  config.schedule.warmup_steps = 2;
  config.parallel.dp_shard = 1;
  config.checkpoint.keep = 0;
  return config;
}

TinyRun run(const Config& config, const TrainHooks& hooks) {
  TinyRun result;
  const StopSignal stop_signal;
  const int ranks = config.parallel.dp_replicate * config.parallel.dp_shard * config.parallel.tp;
  if (ranks == 1) {
    result.outcome = train(config, make_self_communicator(), stop_signal, hooks);
  } else {
    run_thread_ranks(ranks, [&](Communicator& world) {
      // train() takes its world over; a split of everyone is the same group.
      const TrainOutcome outcome =
          train(config, world.split(0, world.rank(), "world"), stop_signal, hooks);
      if (world.rank() == 0) result.outcome = outcome;
    });
  }
  std::ifstream in(std::filesystem::path(config.run.dir) / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::json::parse(line);
    auto& lines = json.contains("event")       ? result.events
                  : json.contains("eval_loss") ? result.evals
                                               : result.steps;
    lines.push_back(std::move(json));
  }
  return result;
}

std::map<std::string, std::vector<double>> read_states(const Config& config, int64_t step) {
  CheckpointReader reader(std::filesystem::path(config.run.dir) / "checkpoints" /
                          step_dir_name(step));
  std::map<std::string, std::vector<double>> states;
  for (const auto& tensor : reader.manifest().tensors) {
    for (const auto& state : reader.manifest().states_of(tensor)) {
      const Box box = whole_box(tensor.shape);
      auto& values = states[tensor.name + "/" + state];
      values.resize(static_cast<size_t>(box.numel()));
      reader.read({.tensor = tensor.name,
                   .state = state,
                   .slice = {box, 0, box.numel()},
                   .dtype = Dtype::kF64,
                   .data = reinterpret_cast<std::byte*>(values.data())});
    }
  }
  return states;
}

void expect_close(const TinyRun& run, const TinyRun& reference, double tolerance) {
  ASSERT_EQ(run.steps.size(), reference.steps.size());
  for (size_t i = 0; i < run.steps.size(); ++i) {
    for (const char* key : {"loss", "grad_norm"}) {
      const double a = run.steps[i].at(key), b = reference.steps[i].at(key);
      EXPECT_NEAR(a, b, tolerance * std::abs(b)) << key << " of step " << i + 1;
    }
    EXPECT_EQ(run.steps[i].at("lr"), reference.steps[i].at("lr"));
    EXPECT_EQ(run.steps[i].at("samples"), reference.steps[i].at("samples"));
  }
}

void expect_identical(const TinyRun& run, const TinyRun& reference) {
  ASSERT_EQ(run.steps.size(), reference.steps.size());
  for (size_t i = 0; i < run.steps.size(); ++i)
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "samples"})
      EXPECT_EQ(run.steps[i].at(key), reference.steps[i].at(key)) << key << " of step " << i + 1;
}

void expect_weights_close(const std::map<std::string, std::vector<double>>& run,
                          const std::map<std::string, std::vector<double>>& reference,
                          int64_t steps, double tolerance) {
  ASSERT_EQ(run.size(), reference.size());
  for (const auto& [name, values] : run) {
    ASSERT_TRUE(reference.contains(name)) << name;  // the same names everywhere
    if (!name.ends_with(std::string("/") + kStateParam)) continue;
    const auto& wanted = reference.at(name);
    ASSERT_EQ(values.size(), wanted.size()) << name;
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double d = values[i] - wanted[i];
      difference += d * d;
      norm += wanted[i] * wanted[i];
    }
    const double moved =
        kLearningRate * static_cast<double>(steps) * std::sqrt(static_cast<double>(values.size()));
    EXPECT_LE(std::sqrt(difference) / std::max(std::sqrt(norm), moved), tolerance) << name;
  }
}

}  // namespace tessera
