#include "checkpoint/store/inspect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

#include "base/text/quantities.h"
#include "checkpoint/store/reader.h"

namespace tessera {
namespace {

std::string mesh_text(const nlohmann::json& mesh) {
  std::vector<std::string> axes;
  if (mesh.is_object())
    for (const auto& [axis, size] : mesh.items()) axes.push_back(axis + " " + size.dump());
  return axes.empty() ? "unknown" : fmt::format("{}", fmt::join(axes, ", "));
}

}  // namespace

void inspect(const std::filesystem::path& step_dir, std::ostream& out) {
  const CheckpointReader reader(step_dir);
  const Manifest& manifest = reader.manifest();
  int64_t parameters = 0, file_bytes = 0;
  size_t name_width = 6;
  for (const TensorInfo& tensor : manifest.tensors) {
    parameters += whole_box(tensor.shape).numel();
    name_width = std::max(name_width, tensor.name.size());
  }
  name_width = std::min<size_t>(name_width, 60);
  for (const ManifestFile& file : manifest.files) file_bytes += file.size;

  out << fmt::format("checkpoint  {}\n", step_dir.string())
      << fmt::format("written by  {}\n", manifest.writer)
      << fmt::format("step        {}\n", manifest.step)
      << fmt::format("samples     {}\n", manifest.samples)
      << fmt::format("tokens      {}\n", manifest.tokens)
      << fmt::format("seed        {}\n", manifest.seed)
      << fmt::format("mesh        {}\n", mesh_text(manifest.mesh))
      << fmt::format("states      {}\n", fmt::join(manifest.states, ", "))
      << fmt::format("parameters  {} in {} tensors\n", parameters, manifest.tensors.size())
      << fmt::format("files       {} of {} in all\n\n", manifest.files.size(),
                     bytes_text(file_bytes));
  out << fmt::format("{:<{}}  {:<18}  {:>12}  {}\n", "tensor", name_width, "shape", "elements",
                     "stored as");
  for (const TensorInfo& tensor : manifest.tensors) {
    std::vector<std::string> stored;
    for (const std::string& state : manifest.states_of(tensor))
      stored.push_back(
          fmt::format("{} {}", state, dtype_name(reader.stored_dtype(tensor.name, state))));
    out << fmt::format("{:<{}}  {:<18}  {:>12}  {}\n", tensor.name, name_width,
                       fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
                       whole_box(tensor.shape).numel(), fmt::join(stored, ", "));
  }
  out << "\n";
  for (const ManifestFile& file : manifest.files)
    out << fmt::format("{}  {:>12}\n", file.name, bytes_text(file.size));
}

nlohmann::ordered_json inspect_json(const std::filesystem::path& step_dir) {
  const CheckpointReader reader(step_dir);
  const Manifest& manifest = reader.manifest();
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  int64_t parameters = 0, bytes = 0;
  for (const TensorInfo& tensor : manifest.tensors) {
    nlohmann::ordered_json states;
    for (const std::string& state : manifest.states_of(tensor))
      states[state] = dtype_name(reader.stored_dtype(tensor.name, state));
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"states", states}});
    parameters += whole_box(tensor.shape).numel();
  }
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.size}});
    bytes += file.size;
  }
  return {{"checkpoint", step_dir.string()},
          {"writer", manifest.writer},
          {"step", manifest.step},
          {"samples", manifest.samples},
          {"tokens", manifest.tokens},
          {"seed", manifest.seed},
          {"mesh", manifest.mesh},
          {"states", manifest.states},
          {"parameters", parameters},
          {"bytes", bytes},
          {"tensors", tensors},
          {"files", files}};
}

}  // namespace tessera
