#include "training/start/model_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

// Keys in which a run may differ from the checkpoint that it starts from: how weights were drawn
// does not matter once they are there, and dropout may change.
bool may_differ(const ModelKey& key) {
  return key.role == KeyRole::kInitialSpread || key.role == KeyRole::kDropoutRate;
}

// Their names in a config.json.
std::set<std::string> training_keys(AnyModel model) {
  std::set<std::string> names;
  for (const ModelKey& key : model->keys())
    if (key.hf && may_differ(key)) names.insert(key.hf_name());
  return names;
}

// The values, by name, of the keys that must agree.
std::map<std::string, std::string> values_of(AnyModel model) {
  std::map<std::string, std::string> values = {{"type", model->type()}};
  for (const ModelKey& key : model->keys())
    if (!may_differ(key)) values[key.name] = value_text(key.value);
  return values;
}

}  // namespace

void check_same_model(const nlohmann::json& recorded, const Model& model,
                      const std::filesystem::path& step_dir) {
  const auto then = values_of(model_from_hf(recorded, step_dir.string()));
  auto now = values_of(AnyModel(model.clone()));
  std::vector<std::string> differences;
  for (const auto& [key, value] : then) {
    const std::string here = now.contains(key) ? now[key] : "not a key";
    if (value != here)
      differences.push_back(
          fmt::format("model.{}: {} there, {} in the configuration", key, value, here));
  }
  if (differences.empty()) return;
  fail_user("train", "{} holds another model:\n  {}\nmake the configuration agree with it",
            step_dir.string(), fmt::join(differences, "\n  "));
}

nlohmann::json model_record(const nlohmann::json& start, const AnyModel& model, int64_t seq_len) {
  nlohmann::json record = model->hf_config(seq_len);
  if (!start.is_object() && !model.source().is_object()) return record;
  const nlohmann::json defaults = model->hf_defaults();
  record.update(defaults);
  const std::set<std::string> of_training = training_keys(model);
  for (const nlohmann::json* there : {&start, &model.source()}) {
    if (!there->is_object()) continue;
    for (const auto& [key, value] : there->items()) {
      const bool describes_training = of_training.contains(key);
      // If null stands for a number of the network, the record keeps the number.
      const bool left_open = value.is_null() && record.contains(key) && !defaults.contains(key);
      if (!describes_training && !left_open) record[key] = value;
    }
  }
  const auto length = record.find(model->hf_context_key());
  if (length != record.end() && (!length->is_number_integer() || *length < seq_len))
    *length = seq_len;
  return record;
}

}  // namespace tessera
