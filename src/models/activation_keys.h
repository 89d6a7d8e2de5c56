#pragma once

#include "base/fields/field.h"
#include "models/layers/activation.h"

namespace tessera {

// A key that chooses an activation, by Hugging Face's names.
ChoiceValue activation_choice(Activation& member);

// The other names in a config.json of transformers, which has several for GELU and for gelu_new,
// one for each way to write the same function down.
Synonyms hf_activation_words();

}  // namespace tessera
