#include "models/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files/files.h"
#include "base/text/json_text.h"
#include "checkpoint/huggingface/hugging_face.h"
#include "models/model_list.h"
#include "models/model_options.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/executor/stage.h"
#include "parallel/mesh.h"

namespace tessera {
namespace {

// A new model is one more line; each says its own type.
constexpr std::unique_ptr<Model> (*kMakers[])() = {
    make_llama_model, make_mistral_model, make_qwen2_model, make_qwen3_model,
    make_phi3_model,  make_gpt2_model,    make_vit_model,   make_transformer_model,
};

}  // namespace

std::vector<std::string> model_types() {
  std::vector<std::string> types;
  for (const auto make : kMakers) types.push_back(make()->type());
  return types;
}

std::unique_ptr<Model> make_model(const std::string& type) {
  for (const auto make : kMakers)
    if (auto model = make(); model->type() == type) return model;
  fail("models", "no model of type '{}'; there are {}", type, fmt::join(model_types(), ", "));
}

AnyModel::AnyModel() : model_(kMakers[0]()) {}

bool AnyModel::operator==(const AnyModel& other) const {
  if (model_->type() != other.model_->type()) return false;
  const AnyModel left = *this, right = other;
  const std::vector<Field> mine = left.model_->fields(), theirs = right.model_->fields();
  for (size_t i = 0; i < mine.size(); ++i)
    if (value_text(mine[i].value) != value_text(theirs[i].value)) return false;
  return true;
}

AnyModel model_from_hf(const nlohmann::json& config, const std::string& source) {
  const HfConfig hf(config, source);
  const std::vector<std::string> types = model_types();
  const std::string type = hf.text_or("model_type", "");
  if (std::find(types.begin(), types.end(), type) == types.end())
    hf.refuse("model_type", config.value("model_type", nlohmann::json()),
              fmt::format("the models of this program are {}", fmt::join(types, ", ")));
  AnyModel model(make_model(type));
  hf.require_plain_weights();
  model->read_hf_config(hf);
  model.set_source(config);
  return model;
}

AnyModel read_hf_model(const std::filesystem::path& file) {
  const std::string source = file.string();
  return model_from_hf(parse_json(read_small_file(file, kMaxHfConfigBytes), source), source);
}

std::vector<TensorInfo> model_tensors(const Model& model) {
  Mesh mesh({1, 1, 1}, make_self_communicator());
  std::vector<TensorInfo> tensors;
  for (const auto& stage : model.make_stages(/*seq_len=*/1, mesh, {}))
    for (const auto& parameter : stage->table().parameters())
      tensors.push_back({parameter.spec.name, parameter.spec.shape});
  return tensors;
}

}  // namespace tessera
