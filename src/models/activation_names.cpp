#include "models/activation_names.h"

#include <algorithm>

namespace tessera {

std::vector<std::string> activation_names() {
  return {"gelu", "gelu_new", "relu"};
}

std::string activation_name(Activation activation) {
  return activation_names().at(static_cast<size_t>(activation));
}

Activation activation_of(const HfConfig& hf, const char* key, const std::string& name) {
  const std::vector<std::string> names = activation_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) hf.refuse(key, name, "gelu, gelu_new and relu are supported");
  return static_cast<Activation>(found - names.begin());
}

Activation read_hf_activation(const HfConfig& hf, const char* key, Activation otherwise) {
  const std::string name = hf.text_or(key, activation_name(otherwise));
  const std::vector<std::string> by_tanh = {"gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast",
                                            "gelu_accurate"};
  if (std::find(by_tanh.begin(), by_tanh.end(), name) != by_tanh.end())
    return Activation::kGeluTanh;
  return name == "gelu_python" ? Activation::kGelu : activation_of(hf, key, name);
}

}  // namespace tessera
