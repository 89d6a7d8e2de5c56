#include "models/model_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

using nlohmann::json;

// "a, b and c".
std::string listed(const std::vector<std::string>& words) {
  if (words.size() < 2) return fmt::format("{}", fmt::join(words, ""));
  return fmt::format("{} and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

[[noreturn]] void fail_kind(const ModelKey& key) {
  fail("models", "model.{}: a value of its kind has no form in config.json", key.name);
}

// Sets one key. `instead`: the value where config.json has none of its own; none: it has one.
struct ReadHfKey {
  const HfConfig& hf;
  const ModelKey& key;
  const std::optional<json> instead;
  const char* const name = key.hf_name().c_str();

  void operator()(const IntegerValue& v) const {
    if (instead)
      v.set(instead->is_null() ? std::nullopt : std::optional(instead->get<int64_t>()));
    else
      v.set(key.hf->left_out ? hf.size_or(name, 0) : hf.size(name));
  }
  void operator()(const RealValue& v) const {
    if (instead)
      *v.value = instead->get<double>();
    else
      *v.value =
          key.role == KeyRole::kDropoutRate ? hf.rate_or(name, 0.0) : hf.number_or(name, 0.0);
  }
  void operator()(const FlagValue& v) const {
    *v.value = instead ? instead->get<bool>() : hf.flag_or(name, false);
  }
  void operator()(const ChoiceValue& v) const {
    const std::string text = instead ? instead->get<std::string>() : hf.text_or(name, "");
    std::string word = text;
    for (const auto& [other, meant] : key.hf->words)
      if (other == text) word = meant;
    const auto found = std::find(v.words.begin(), v.words.end(), word);
    if (found == v.words.end()) hf.refuse(name, text, listed(v.words) + " are supported");
    v.set(static_cast<int>(found - v.words.begin()));
  }
  template <typename Other>
  void operator()(const Other&) const {
    fail_kind(key);
  }
};

struct WriteHfKey {
  const ModelKey& key;

  json operator()(const IntegerValue& v) const {
    const std::optional<int64_t> value = v.get();
    return value ? json(*value) : json();
  }
  json operator()(const RealValue& v) const { return *v.value; }
  json operator()(const FlagValue& v) const { return *v.value; }
  json operator()(const ChoiceValue& v) const { return v.words.at(static_cast<size_t>(v.get())); }
  template <typename Other>
  json operator()(const Other&) const {
    fail_kind(key);
  }
};

}  // namespace

void read_hf_keys(const HfConfig& hf, const std::vector<ModelKey>& keys) {
  for (const ModelKey& key : keys) {
    if (!key.hf) continue;
    std::optional<json> instead;
    const auto found = hf.json().find(key.hf_name());
    if (found == hf.json().end())
      instead = key.hf->left_out;
    else if (found->is_null())
      instead = key.hf->null;
    std::visit(ReadHfKey{hf, key, std::move(instead)}, key.value);
  }
}

void write_hf_keys(const std::vector<ModelKey>& keys, json& out) {
  for (const ModelKey& key : keys)
    if (key.hf) out[key.hf_name()] = std::visit(WriteHfKey{key}, key.value);
}

}  // namespace tessera
