#include "training/model_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "models/registry.h"

namespace tessera {
namespace {

// How the weights came about is past once they are there, and dropout may change.
bool may_differ(const std::string& key) {
  return key == "initializer_range" || key.ends_with("dropout") || key.ends_with("_pdrop") ||
         key.ends_with("dropout_prob");
}

}  // namespace

void check_same_model(const nlohmann::json& recorded, const Model& model,
                      const std::filesystem::path& step_dir) {
  const AnyModel there = model_from_hf(recorded, step_dir.string());
  // Read back, both spell what they mean in the same way.
  const nlohmann::json then = there->hf_config(0), now = model.hf_config(0);
  std::vector<std::string> differences;
  for (const auto& [key, value] : then.items())
    if (!may_differ(key) && (!now.contains(key) || value != now[key]))
      differences.push_back(fmt::format("model.{}: {} there, {} in the configuration", key,
                                        value.dump(), now.value(key, nlohmann::json()).dump()));
  if (differences.empty()) return;
  fail_user("train", "{} holds another model:\n  {}\nmake the configuration agree with it",
            step_dir.string(), fmt::join(differences, "\n  "));
}

nlohmann::json model_record(const nlohmann::json& start, const Model& model, int64_t seq_len) {
  nlohmann::json record = model.hf_config(seq_len);
  if (!start.is_object()) return record;
  for (const auto& [key, value] : start.items()) {
    const bool describes_training = may_differ(key) && record.contains(key);
    if (!describes_training) record[key] = value;
  }
  const char* const kLength = "max_position_embeddings";
  if (start.contains(kLength) && start[kLength].is_number_integer() && start[kLength] < seq_len)
    record[kLength] = seq_len;
  return record;
}

}  // namespace tessera
