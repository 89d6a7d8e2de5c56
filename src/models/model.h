#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/fields/field.h"
#include "base/fields/rule_report.h"
#include "checkpoint/huggingface/hf_tensors.h"
#include "models/hf_config.h"
#include "models/model_input.h"
#include "models/model_key.h"

namespace tessera {

class Mesh;
class Stage;
struct ModelOptions;

// An architecture with its sizes: what the `model` section of a configuration says. Everything else
// of the program learns about models here; registry.cpp lists them, docs/adding-a-model.md walks
// through one.
class Model {
 public:
  virtual ~Model() = default;
  virtual std::unique_ptr<Model> clone() const = 0;  // Cloned has it

  // The name in the registry, `model.type`; Hugging Face's model_type where it has one.
  virtual std::string type() const = 0;
  // What it is fed with: what data is checked against.
  virtual ModelInput input() const = 0;

  // The keys of the section besides `type`, bound to this object.
  virtual std::vector<ModelKey> keys() = 0;
  // After the keys are read: defaults that follow from other keys.
  virtual void complete() {}
  // Reports sizes that do not go together; each is in its range. seq_len: of a sample of tokens,
  // else 0.
  virtual void check(int64_t seq_len, RuleReport& report) const = 0;
  // Empty if the model can be split over tp ranks; else the rule that it breaks, such as "must
  // divide model.intermediate_size 100".
  virtual std::string why_not_tp(int64_t tp) const = 0;

  // The keys as the reader of configurations takes them, and by what they mean: the role of one by
  // its name (kOther for a name that is none), the names of those of one role.
  std::vector<Field> fields();
  KeyRole role_of(const std::string& key) const;
  std::vector<std::string> keys_of(KeyRole role) const;

  // The chain that trains on samples of seq_len tokens. `mesh` outlives the stages.
  virtual std::vector<std::unique_ptr<Stage>> make_stages(int64_t seq_len, Mesh& mesh,
                                                          const ModelOptions& options) const = 0;

  // Hugging Face.
  //
  // Takes the sizes of a config.json, whose own defaults apply to keys that it leaves out.
  // UserError for anything that changes the network and that this model cannot do.
  void read_hf_config(const HfConfig& hf);
  // The config.json with which `transformers` builds this model; every checkpoint carries it.
  nlohmann::json hf_config(int64_t seq_len) const;
  // Keys that change no number (the longest context, ids of tokens), as its class of transformers
  // takes them where a config.json leaves them out.
  virtual nlohmann::json hf_defaults() const { return nlohmann::json::object(); }
  // The one of these that says how long a context may be; empty: none does.
  virtual std::string hf_context_key() const { return {}; }
  // How its files' tensors follow from the parameters; by default, name by name.
  virtual HfTensors hf_tensors() const { return {}; }

 protected:
  // What config.json says beside the keys that have one place in it: read, or refused, after them.
  virtual void read_hf_rest(const HfConfig& hf) = 0;
  // Added to the keys, and in place of them where it is of the same name.
  virtual void write_hf_rest(int64_t seq_len, nlohmann::json& json) const = 0;
};

// `Derived`, a model that starts from `Base`, with its copy.
template <typename Derived, typename Base = Model>
class Cloned : public Base {
 public:
  using Base::Base;
  std::unique_ptr<Model> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

}  // namespace tessera
