#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/pieces.h"
#include "models/model.h"

namespace tessera {

// Every model that this program trains, by `model.type`.
std::vector<std::string> model_types();

// With its defaults; Error if there is none of that type.
std::unique_ptr<Model> make_model(const std::string& type);

// A model as a value: copied, and compared by type and keys, not by where it is from.
class AnyModel {
 public:
  AnyModel();  // the first of the registry, with its defaults
  explicit AnyModel(std::unique_ptr<Model> model) : model_(std::move(model)) {}
  AnyModel(const AnyModel& other) : model_(other.model_->clone()), source_(other.source_) {}
  AnyModel(AnyModel&&) noexcept = default;
  AnyModel& operator=(const AnyModel& other) {
    model_ = other.model_->clone();
    source_ = other.source_;
    return *this;
  }
  AnyModel& operator=(AnyModel&&) noexcept = default;

  Model& operator*() { return *model_; }
  const Model& operator*() const { return *model_; }
  Model* operator->() { return model_.get(); }
  const Model* operator->() const { return model_.get(); }

  bool operator==(const AnyModel& other) const;

  // The config.json that it was read from, which says more than the network needs; null: none.
  const nlohmann::json& source() const { return source_; }
  void set_source(nlohmann::json source) { source_ = std::move(source); }

 private:
  std::unique_ptr<Model> model_;
  nlohmann::json source_;
};

// The model that a Hugging Face config.json describes. Keys that do not change the network (token
// ids, dtype, cache) are passed over. UserError "[config] SOURCE: key: value; what is supported"
// for anything that no model here can do; `source` says where the JSON comes from, such as a path.
AnyModel model_from_hf(const nlohmann::json& config, const std::string& source);

// Reads the file strictly (repeated keys are errors) and takes the model from it.
AnyModel read_hf_model(const std::filesystem::path& file);

// Every parameter of this model, as checkpoints name it, in model order.
std::vector<TensorInfo> model_tensors(const Model& model);

}  // namespace tessera
