#include "models/model.h"

namespace tessera {

std::vector<Field> Model::fields() {
  std::vector<Field> fields;
  for (const ModelKey& key : keys()) fields.push_back(key.field());
  return fields;
}

// The table is bound to the object whose values it can change, so a constant one is copied.
KeyRole Model::role_of(const std::string& key) const {
  const std::unique_ptr<Model> copy = clone();
  for (const ModelKey& known : copy->keys())
    if (known.name == key) return known.role;
  return KeyRole::kOther;
}

std::vector<std::string> Model::keys_of(KeyRole role) const {
  std::vector<std::string> names;
  const std::unique_ptr<Model> copy = clone();
  for (const ModelKey& key : copy->keys())
    if (key.role == role) names.push_back(key.name);
  return names;
}

void Model::read_hf_config(const HfConfig& hf) {
  read_hf_keys(hf, keys());
  read_hf_rest(hf);
  complete();
}

nlohmann::json Model::hf_config(int64_t seq_len) const {
  nlohmann::json json = {{"model_type", type()}};
  if (const std::string name = hf_tensors().architecture; !name.empty())
    json["architectures"] = nlohmann::json::array({name});
  const std::unique_ptr<Model> copy = clone();
  write_hf_keys(copy->keys(), json);
  write_hf_rest(seq_len, json);
  return json;
}

}  // namespace tessera
