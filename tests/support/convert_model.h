#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/huggingface/consolidate.h"
#include "checkpoint/huggingface/import.h"
#include "models/registry.h"

namespace tessera {

// As `tessera checkpoint consolidate` and `import` do it.

inline HfModel recognize(const nlohmann::json& config) {
  const AnyModel model = model_from_hf(config, "config.json");
  return {model->hf_tensors(), model_tensors(*model)};
}

inline void export_step(const std::filesystem::path& step, const std::filesystem::path& out,
                        ConsolidateOptions options = {}) {
  options.tensors = [](const nlohmann::json& config) {
    return model_from_hf(config, "the checkpoint's model")->hf_tensors();
  };
  consolidate(step, out, options);
}

inline std::vector<std::string> import_folder(const std::filesystem::path& hf,
                                              const std::filesystem::path& step) {
  return import_hugging_face(hf, step, recognize);
}

}  // namespace tessera
