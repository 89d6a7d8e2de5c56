#include "training/start/initial_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/store/run_folder.h"
#include "models/registry.h"

namespace tessera {

void check_init_from(const std::filesystem::path& folder) {
  check_step_folder(folder, "checkpoint.init_from");
  if (is_folder(folder) &&
      type_of(folder / "manifest.json") == std::filesystem::file_type::not_found)
    fail_user("train",
              "checkpoint.init_from: {}; it has neither the manifest.json of a step folder nor the "
              "config.json of a Hugging Face folder",
              folder.string());
}

InitialWeights weights_of_step(const Manifest& manifest, const std::filesystem::path& folder) {
  InitialWeights weights{.id = manifest.id, .step = manifest.step, .model = manifest.model};
  std::vector<std::string> others;
  for (const std::string& state : manifest.states)
    if (state != kStateParam) others.push_back(state);
  if (!others.empty())
    weights.notes.push_back(
        fmt::format("{} also holds {} and the progress of step {}, which are left there",
                    folder.string(), fmt::join(others, ", "), manifest.step));
  return weights;
}

InitialWeights weights_of_hugging_face(const std::filesystem::path& folder) {
  nlohmann::json config = read_hugging_face_config(folder);
  const AnyModel model = model_from_hf(config, (folder / "config.json").string());
  InitialWeights weights;
  weights.hugging_face = std::make_shared<HuggingFaceSource>(
      folder, std::move(config), HfModel{model->hf_tensors(), model_tensors(*model)});
  weights.id = weights.hugging_face->id();
  weights.model = weights.hugging_face->config();
  weights.notes = weights.hugging_face->notes();
  return weights;
}

InitialWeights look_at_weights(const std::filesystem::path& folder) {
  if (is_hugging_face_folder(folder)) return weights_of_hugging_face(folder);
  check_init_from(folder);
  return weights_of_step(read_manifest(folder), folder);
}

}  // namespace tessera
