#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/fields/field.h"
#include "models/hf_config.h"

namespace tessera {

// What a key means to the rest of the program, which asks for that and never goes by a name.
enum class KeyRole {
  kOther,
  // How much is dropped. What the weights mean does not depend on it, so it may change from run to
  // run and stand beside model.config; GPUs cannot drop.
  kDropoutRate,
  kInitialSpread,  // standard deviation of the initial weights, which shapes a new run alone
  kRotaryBase,     // the model has tables of rotary positions
};

// How a key stands in a config.json. A value of null stands for the word of the key (auto, none).
struct HfKey {
  std::string name = {};  // empty: as the key
  // What its class of transformers takes where the key is left out; none: it must be there.
  std::optional<nlohmann::json> left_out = {};
  std::optional<nlohmann::json> null = {};  // what null stands for; none: null is refused
  Synonyms words = {};                      // of a choice: other words for the same
};

// A key of the `model` section, said once: the reader of YAML, `config show`, the rules on resume,
// config.json in both directions and the tables of docs/configuration.md follow from it.
struct ModelKey {
  std::string name;                       // Hugging Face's, or of a like model
  FieldValue value;                       // bound to the model
  std::string doc;                        // one line
  std::vector<std::string> aliases = {};  // other trainers' names: only for "did you mean"
  bool required = false;
  std::string follows = {};  // the key that the default is taken from; empty: from none
  KeyRole role = KeyRole::kOther;
  // None: config.json has no such key, or says it in a way that the model reads and writes itself.
  std::optional<HfKey> hf = {};

  const std::string& hf_name() const { return hf && !hf->name.empty() ? hf->name : name; }
  Field field() const {
    return {name, value, required, OnResume::kMathematics, doc, aliases, follows};
  }
};

// Sets the values of the keys that have a place in config.json. UserError "[config] SOURCE: key:
// value; the rule" for one that is missing or of the wrong kind.
void read_hf_keys(const HfConfig& hf, const std::vector<ModelKey>& keys);

// The other way; what `json` has by the same names is replaced.
void write_hf_keys(const std::vector<ModelKey>& keys, nlohmann::json& json);

}  // namespace tessera
