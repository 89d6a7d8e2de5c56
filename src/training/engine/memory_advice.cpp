#include "training/engine/memory_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tessera {
namespace {

constexpr size_t kMostAdvices = 3;

// A setting, its cost, and the memory case with the setting changed.
struct Change {
  std::string setting;
  int cost;
  MemoryCase made;
};

int stages_of(const MemoryCase& c) {
  return static_cast<int>(c.chain.stages.size());
}

std::optional<Change> zero(const MemoryCase& now, int stage, int cost) {
  if (now.policy.zero >= stage || now.mesh.dp_shard == 1) return std::nullopt;
  Change change{fmt::format("parallel.zero: {}", stage), cost, now};
  change.made.policy.zero = stage;
  return change;
}

std::optional<Change> half_micro_batch(const MemoryCase& now) {
  if (now.micro_batch_size < 2) return std::nullopt;
  Change change{"", 2, now};
  change.made.micro_batch_size = (now.micro_batch_size + 1) / 2;
  change.setting = fmt::format("training.micro_batch_size: {}", change.made.micro_batch_size);
  return change;
}

std::optional<Change> reshard(const MemoryCase& now) {
  if (now.policy.zero < 3 || now.options.keep_gathered <= 1 || stages_of(now) < 2)
    return std::nullopt;
  Change change{"parallel.reshard_after_forward: true", 4, now};
  change.made.options.keep_gathered = 1;
  return change;
}

std::optional<Change> more_shards(const MemoryCase& now) {
  if (now.mesh.dp_replicate % 2 != 0) return std::nullopt;
  Change change{"", 4, now};
  MeshShape& mesh = change.made.mesh;
  mesh.dp_replicate /= 2;
  mesh.dp_shard *= 2;
  change.setting =
      fmt::format("parallel.dp_shard: {} (dp_replicate: {})", mesh.dp_shard, mesh.dp_replicate);
  return change;
}

std::optional<Change> offload(const MemoryCase& now, bool all, int cost) {
  const ShardingPolicy& policy = now.policy;
  if (!now.can_offload) return std::nullopt;
  if (all ? policy.offload_gradients || policy.keeps_full_gradients() : policy.offload_optimizer)
    return std::nullopt;
  Change change{fmt::format("memory.offload: {}", all ? "all" : "optimizer"), cost, now};
  change.made.policy.offload_optimizer = true;
  change.made.policy.offload_gradients = all;
  return change;
}

std::vector<Change> changes(const MemoryCase& now) {
  std::vector<Change> found;
  for (auto& change :
       {zero(now, 1, 1), half_micro_batch(now), zero(now, 2, 3), reshard(now), more_shards(now),
        zero(now, 3, 6), offload(now, false, 20), offload(now, true, 25)})
    if (change) found.push_back(*change);
  return found;
}

// The key of a setting: two settings of the same key cannot go together.
std::string key_of(const std::string& setting) {
  return setting.substr(0, setting.find(':'));
}

}  // namespace

MemoryAdvices advise_memory(const MemoryCase& now, int64_t limit, int64_t activations) {
  struct Candidate {
    MemoryAdvice advice;
    int cost;
  };
  std::vector<Candidate> candidates;
  const auto consider = [&](std::vector<std::string> settings, int cost, const MemoryCase& made) {
    const int64_t engine = predict_memory(made.chain, made.mesh, made.policy, made.options).total();
    const int64_t beside = activations * made.micro_batch_size / now.micro_batch_size;
    candidates.push_back({{std::move(settings), engine + beside}, cost});
    return candidates.back().advice.needs <= limit;
  };
  std::vector<Change> rest;  // that do not fit alone
  std::vector<std::string> enough;
  for (Change& change : changes(now)) {
    if (consider({change.setting}, change.cost, change.made))
      enough.push_back(change.setting);
    else
      rest.push_back(std::move(change));
  }
  for (const Change& first : rest)
    for (const Change& second : changes(first.made))
      if (second.cost >= first.cost && key_of(second.setting) != key_of(first.setting) &&
          std::find(enough.begin(), enough.end(), second.setting) == enough.end())
        consider({first.setting, second.setting}, first.cost + second.cost, second.made);

  MemoryAdvices result;
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  for (const auto& [advice, cost] : candidates) {
    if (advice.needs <= limit && result.fitting.size() < kMostAdvices)
      result.fitting.push_back(advice);
    if (result.closest.settings.empty() || advice.needs < result.closest.needs)
      result.closest = advice;
  }
  if (now.options.recompute_every == 0 && !now.selective_recompute)
    result.unknown.push_back("memory.recompute: selective");
  if (now.options.recompute_every != 1) result.unknown.push_back("memory.recompute: full");
  return result;
}

}  // namespace tessera
