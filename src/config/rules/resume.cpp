#include "config/rules/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/text/nearest.h"
#include "config/keys/fields.h"
#include "config/save.h"

namespace tessera {
namespace {

using nlohmann::json;

// A value in a line of the difference.
std::string shown(const json& value) {
  if (value.is_null()) return "(absent)";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

const json* member(const json* object, const std::string& key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

// Keys of `saved` that this version does not have: it cannot tell what they did, so they count as
// mathematics.
void add_unknown(const json& saved, const json& now, std::vector<std::string>& lines) {
  for (const auto& [name, value] : saved.items()) {
    const json* known = member(&now, name);
    if (known == nullptr) {
      lines.push_back(fmt::format("{}: {} -> (absent)", name, value.dump()));
    } else if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) {
        if (member(known, key) == nullptr) {
          lines.push_back(fmt::format("{}.{}: {} -> (absent)", name, key, inner.dump()));
        }
      }
    }
  }
}

}  // namespace

std::string why_fixed(const std::string& key, const Model& model) {
  constexpr std::string_view kSection = "model.";
  if (key.starts_with(kSection)) {
    const KeyRole role = model.role_of(key.substr(kSection.size()));
    if (role == KeyRole::kInitialSpread) return "it shapes the weights of a new run alone";
    if (role != KeyRole::kDropoutRate) return "the checkpoint's weights are those of its model";
  }
  if (key == "data.kind") return "a model takes samples of one kind";
  if (key == "data.pad_id" || key == "data.bos_id" || key == "data.eos_id")
    return "the checkpoint's weights have learned what that token means";
  return "";
}

std::string ConfigChange::text() const {
  return fmt::format("{}: {} -> {}", key, shown(before), shown(after));
}

ConfigDifference compare_for_resume(const json& saved, const Config& now) {
  Config copy = now;
  const json current = to_json(now);
  Config fresh;
  fresh.model = AnyModel(make_model(now.model->type()));
  const json defaults = to_json(fresh);
  const auto& allowed = now.checkpoint.allow_change;
  ConfigDifference difference;
  for (const Section& section : describe(copy)) {
    const auto in_section = [&](const json& json) {
      return section.name.empty() ? &json : member(&json, section.name);
    };
    for (const Field& field : section.fields) {
      const json* before = member(in_section(saved), field.name);
      const json* after = member(in_section(current), field.name);
      // A key that the saved version did not have yet had its default's meaning.
      const json* meant = before ? before : member(in_section(defaults), field.name);
      if (*meant == *after) continue;
      const ConfigChange change{section.path(field), before ? *before : json(), *after};
      if (field.on_resume == OnResume::kFree) {
        difference.other.push_back(change.text());
      } else if (why_fixed(change.key, *now.model).empty() &&
                 std::find(allowed.begin(), allowed.end(), change.key) != allowed.end()) {
        difference.allowed.push_back(change);
      } else {
        difference.mathematics.push_back(change.text());
        if (why_fixed(change.key, *now.model).empty()) difference.on_request.push_back(change.key);
      }
    }
  }
  add_unknown(saved, current, difference.mathematics);
  return difference;
}

void check_allow_change(const Config& config, RuleReport& report) {
  Config copy = config;
  for (const std::string& wanted : config.checkpoint.allow_change) {
    std::vector<std::string> keys;
    const auto refuse = [&](const std::string& why) {
      report.broken({"checkpoint.allow_change"}, "checkpoint.allow_change: {}; {}", wanted, why);
    };
    bool known = wanted == kDataContents;
    for (const Section& section : describe(copy)) {
      for (const Field& field : section.fields) {
        const std::string key = section.path(field), why = why_fixed(key, *config.model);
        const bool free = field.on_resume == OnResume::kFree;
        if ((!free && why.empty()) || key == kDataContents) keys.push_back(key);
        if (key != wanted || known) continue;
        known = true;
        if (free) refuse("it may change without being named; remove it from the list");
        if (!why.empty())
          refuse(fmt::format(
              "it cannot be changed: {}; remove it from the list, and for another value start "
              "another run",
              why));
      }
    }
    if (known) continue;
    const int near = nearest(wanted, keys);
    refuse(fmt::format(
        "{}it is no key that may be named; these are: {}",
        near < 0 ? "" : fmt::format("did you mean {}? ", keys[static_cast<size_t>(near)]),
        fmt::join(keys, ", ")));
  }
}

}  // namespace tessera
