#include "training/start/run_record.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {

using nlohmann::json;

bool RunRecord::began_at(const std::string& key, const std::string& manifest) const {
  return std::any_of(starts.begin(), starts.end(), [&](const Start& start) {
    return start.key == key && start.manifest == manifest;
  });
}

std::optional<RunRecord> run_record_of(const Manifest& manifest) {
  if (manifest.run.is_null()) return std::nullopt;
  RunRecord record;
  try {
    for (const json& start : manifest.run.at("starts")) {
      record.starts.push_back({start.at("key").get<std::string>(),
                               start.at("manifest").get<std::string>(), std::nullopt});
      if (!start.at("step").is_null()) record.starts.back().step = start["step"].get<int64_t>();
    }
    for (const json& change : manifest.run.at("changes"))
      record.changes.push_back(
          {change.at("step").get<int64_t>(),
           {change.at("key").get<std::string>(), change.at("old"), change.at("new")}});
  } catch (const json::exception& error) {
    fail_user("train", "the manifest's field 'run' cannot be read: {}; it is {}", error.what(),
              manifest.run.dump().substr(0, 200));
  }
  return record;
}

json to_json(const RunRecord& record) {
  json starts = json::array(), changes = json::array();
  for (const auto& start : record.starts)
    starts.push_back({{"key", start.key},
                      {"manifest", start.manifest},
                      {"step", start.step ? json(*start.step) : json()}});
  for (const auto& [step, change] : record.changes)
    changes.push_back(
        {{"step", step}, {"key", change.key}, {"old", change.before}, {"new", change.after}});
  return {{"starts", std::move(starts)}, {"changes", std::move(changes)}};
}

}  // namespace tessera
