#include "config/keys/sections.h"

#include <algorithm>

#include "base/fields/field_kinds.h"

namespace tessera {
namespace {

// Names of classes, and of what has the same architecture.
const Synonyms kModelNames = {
    {"llamaforcausallm", "llama"},
    {"llama2", "llama"},
    {"llama3", "llama"},
    {"llama_2", "llama"},
    {"llama_3", "llama"},
    {"mistralforcausallm", "mistral"},
    {"qwen2forcausallm", "qwen2"},
    {"qwen2.5", "qwen2"},
    {"qwen3forcausallm", "qwen3"},
    {"phi3forcausallm", "phi3"},
    {"phi_3", "phi3"},
    {"phi4", "phi3"},
    {"gpt2lmheadmodel", "gpt2"},
    {"gpt", "gpt2"},
    {"gpt_2", "gpt2"},
    {"vitforimageclassification", "vit"},
    {"vision_transformer", "vit"},
    {"encoder_decoder", "transformer"},
    {"encoderdecodermodel", "transformer"},
};

}  // namespace

Section model_section(AnyModel& model) {
  const std::vector<std::string> types = model_types();
  const auto get = [&model, types] {
    return static_cast<int>(std::find(types.begin(), types.end(), model->type()) - types.begin());
  };
  const auto set = [&model, types](int index) {
    const std::string& type = types[static_cast<size_t>(index)];
    if (model->type() != type) model = AnyModel(make_model(type));
  };
  std::vector<Field> fields = {{"type",
                                ChoiceValue{types, get, set, kModelNames},
                                true,
                                kMathematics,
                                "The architecture.",
                                {"model_type"}}};
  for (Field& field : model->fields()) fields.push_back(std::move(field));
  return {"model", "The model: these keys (Hugging Face's names), or `config` alone.",
          std::move(fields)};
}

}  // namespace tessera
