#include "models/activation_keys.h"

#include "base/fields/field_kinds.h"

namespace tessera {

ChoiceValue activation_choice(Activation& member) {
  return choice(member, {"gelu", "gelu_new", "relu"});
}

Synonyms hf_activation_words() {
  return {{"gelu_python", "gelu"},
          {"gelu_pytorch_tanh", "gelu_new"},
          {"gelu_python_tanh", "gelu_new"},
          {"gelu_fast", "gelu_new"},
          {"gelu_accurate", "gelu_new"}};
}

}  // namespace tessera
