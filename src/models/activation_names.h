#pragma once

#include <string>
#include <vector>

#include "models/hf_config.h"
#include "models/layers/activation.h"

namespace tessera {

// The names of activations in configurations, Hugging Face's, in the order of the enumeration.
std::vector<std::string> activation_names();
std::string activation_name(Activation activation);
// That of the name that a config.json has at `key`; UserError if there is none.
Activation activation_of(const HfConfig& hf, const char* key, const std::string& name);

// That of a config.json of transformers, which has several names for GELU and for gelu_new, one for
// each way to write the same function down.
Activation read_hf_activation(const HfConfig& hf, const char* key, Activation otherwise);

}  // namespace tessera
