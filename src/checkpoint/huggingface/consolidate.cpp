#include "checkpoint/huggingface/consolidate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/huggingface/export_files.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/huggingface/hugging_face.h"
#include "checkpoint/huggingface/replaceable.h"
#include "checkpoint/store/reader.h"
#include "checkpoint/store/whole_folder.h"

namespace tessera {
namespace {

using nlohmann::json;

Dtype output_dtype(const CheckpointReader& reader, const ConsolidateOptions& options,
                   const std::string& name) {
  const Dtype stored = reader.stored_dtype(name, kStateParam);
  const Dtype dtype = options.dtype.value_or(stored);
  if (!can_convert(stored, dtype))
    fail_user("checkpoint", "tensor '{}' is stored as {}, which does not convert to {}", name,
              dtype_name(stored), dtype_name(dtype));
  return dtype;
}

// The tensor of the export whose first part is `tensor`. nullopt if `tensor` is a later part of
// one, or in none.
std::optional<ExportTensor> export_of(const CheckpointReader& reader, const TensorInfo& tensor,
                                      const HfTensors& names, const ConsolidateOptions& options) {
  // A tied model's head is its embedding; transformers expects no tensor of its own for it.
  if (names.tied && tensor.name == names.tied->head) return std::nullopt;
  HfTensor from{tensor.name, {tensor.name}};
  for (const HfTensor& other : names.tensors) {
    const auto part = std::find(other.parts.begin(), other.parts.end(), tensor.name);
    if (part == other.parts.end()) continue;
    if (part != other.parts.begin()) return std::nullopt;
    from = other;
  }
  std::vector<int64_t> shape = tensor.shape;
  for (const TensorInfo& other : reader.manifest().tensors)
    if (other.name != tensor.name && from.parts.size() > 1 &&
        std::find(from.parts.begin(), from.parts.end(), other.name) != from.parts.end())
      shape[0] += other.shape[0];
  if (from.transposed) std::reverse(shape.begin(), shape.end());
  return ExportTensor{{from.name, output_dtype(reader, options, tensor.name), shape},
                      kStateParam,
                      from.parts,
                      from.transposed};
}

// Every state of every tensor, as it is stored but for halves, which become fp32: all exactly.
std::vector<ExportTensor> training_state(const CheckpointReader& reader) {
  std::vector<ExportTensor> tensors;
  for (const TensorInfo& tensor : reader.manifest().tensors)
    for (const std::string& state : reader.manifest().states_of(tensor)) {
      const bool wide = reader.stored_dtype(tensor.name, state) == Dtype::kF64;
      tensors.push_back(
          {{piece_key(tensor.name, state), wide ? Dtype::kF64 : Dtype::kF32, tensor.shape},
           state,
           {tensor.name}});
    }
  return tensors;
}

// What a training state is besides tensors.
json training_numbers(const Manifest& manifest) {
  return {
      {"step", manifest.step},         {"samples", manifest.samples}, {"tokens", manifest.tokens},
      {"seed", manifest.seed},         {"states", manifest.states},   {"config", manifest.config},
      {"training", manifest.training}, {"data", manifest.data},       {"run", manifest.run}};
}

// The config.json of an export: the model's own fields, but with the class and dtype of the weights
// that lie beside it (the folder that was imported may have had others, such as the class of a
// model without its head), and without references to files that do not lie beside it.
json make_config(const json& model, const std::string& architecture, Dtype dtype,
                 const std::optional<std::filesystem::path>& carried) {
  json config = model;
  drop_missing_files(config, carried);
  if (!architecture.empty()) config["architectures"] = {architecture};
  config["torch_dtype"] = torch_dtype_name(dtype);
  if (config.contains("dtype")) config["dtype"] = torch_dtype_name(dtype);  // since transformers 5
  return config;
}

}  // namespace

std::vector<std::string> consolidate(const std::filesystem::path& step_dir,
                                     const std::filesystem::path& out_dir,
                                     const ConsolidateOptions& options) {
  if (options.max_shard_bytes <= 0)
    fail_user("checkpoint", "max_shard_bytes is {}; the rule is above 0", options.max_shard_bytes);
  const CheckpointReader reader(step_dir);
  const Manifest& manifest = reader.manifest();
  if (!manifest.model.is_object())
    fail_user("checkpoint", "{}: the manifest holds no model configuration", step_dir.string());
  if (options.with_optimizer && manifest.states.size() < 2)
    fail_user("checkpoint",
              "{} holds weights alone, so there is no optimizer's state to export; leave out "
              "--with-optimizer",
              step_dir.string());
  const HfTensors names = options.tensors(manifest.model);
  ExportFiles weights{"", kWeightsStem, {}};
  for (const TensorInfo& tensor : manifest.tensors)
    if (auto output = export_of(reader, tensor, names, options))
      weights.tensors.push_back(std::move(*output));
  if (weights.tensors.empty()) fail_user("checkpoint", "{} holds no tensors", step_dir.string());
  const auto carried = find_hf_files(step_dir);
  const json config =
      make_config(manifest.model, names.architecture, weights.tensors.front().spec.dtype, carried);

  WholeFolder folder(out_dir, Replace::when(options.tool.replace, why_no_export, {step_dir}));
  weights.folder = folder.partial();
  std::vector<ExportFiles> exports{std::move(weights)};
  if (options.with_optimizer) {
    exports.push_back(
        {folder.partial() / kTrainingStateFolder, kStateStem, training_state(reader)});
    make_folders(exports.back().folder);
    write_file_atomic(exports.back().folder / kTrainingStateFile,
                      training_numbers(manifest).dump(2) + "\n");
  }
  write_export_files(reader.checkpoint(), exports, options.max_shard_bytes, options.tool);
  if (options.with_optimizer) sync_folder(exports.back().folder);
  write_file_atomic(folder.partial() / "config.json", config.dump(2) + "\n");
  if (carried) copy_hf_files(*carried, folder.partial());
  folder.publish();
  return folder.notes();
}

}  // namespace tessera
