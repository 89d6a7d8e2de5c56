#include "training/tiny_run.h"

#include <algorithm>
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
                  : json.contains("loss")      ? result.steps
                                               : result.files;
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

namespace {

using States = std::map<std::string, std::vector<double>>;

// AdamW's running mean of an element's squared gradients, in the larger of both runs; nothing where
// the optimizer has none.
std::vector<double> squared_gradients(const States& run, const States& reference,
                                      const std::string& tensor) {
  const std::string name = tensor + "/" + kStateExpAvgSq;
  if (!reference.contains(name)) return {};
  std::vector<double> squares = reference.at(name);
  const std::vector<double>& other = run.at(name);
  for (size_t i = 0; i < squares.size(); ++i) squares[i] = std::max(squares[i], other.at(i));
  return squares;
}

double mean_squared_gradient(const States& run, const States& reference) {
  double sum = 0.0, count = 0.0;
  for (const auto& [name, values] : reference) {
    if (!name.ends_with(std::string("/") + kStateParam)) continue;
    const std::string tensor = name.substr(0, name.rfind('/'));
    for (const double square : squared_gradients(run, reference, tensor)) {
      sum += square;
      count += 1.0;
    }
  }
  return count == 0.0 ? 0.0 : sum / count;
}

}  // namespace

void expect_weights_close(const States& run, const States& reference, int64_t steps,
                          double tolerance, double rounding) {
  ASSERT_EQ(run.size(), reference.size());
  for (const auto& [name, values] : run) {  // the same names everywhere
    ASSERT_TRUE(reference.contains(name)) << name;
    ASSERT_EQ(values.size(), reference.at(name).size()) << name;
  }
  const double small = rounding / tolerance * std::sqrt(mean_squared_gradient(run, reference));
  for (const auto& [name, values] : run) {
    if (!name.ends_with(std::string("/") + kStateParam)) continue;
    const auto& wanted = reference.at(name);
    const std::string tensor = name.substr(0, name.rfind('/'));
    const auto squares = squared_gradients(run, reference, tensor);
    double difference = 0.0, norm = 0.0, determined = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
      // Without any gradient (a row of the embedding that no sample has) there is no rounding
      // either.
      const bool vanishes = !squares.empty() && squares[i] > 0.0 && squares[i] < small * small;
      const double counts = vanishes ? std::sqrt(squares[i]) / small : 1.0;
      const double d = counts * (values[i] - wanted[i]);
      difference += d * d;
      norm += wanted[i] * wanted[i];
      determined += counts * counts;
    }
    const auto size = static_cast<double>(values.size());
    const double moved = kLearningRate * static_cast<double>(steps) * std::sqrt(size);
    EXPECT_LE(std::sqrt(difference) / std::max(std::sqrt(norm), moved), tolerance) << name;
    const bool of_keys = tensor.ends_with("k_proj.bias") || tensor.ends_with("attn.k.bias");
    EXPECT_GE(determined / size, of_keys ? 0.0 : 0.99) << name << ": gradients nearly vanish";
  }
}

}  // namespace tessera
