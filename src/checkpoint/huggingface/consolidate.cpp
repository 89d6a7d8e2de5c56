#include "checkpoint/huggingface/consolidate.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/huggingface/hugging_face.h"
#include "checkpoint/store/reader.h"
#include "checkpoint/store/whole_folder.h"
#include "safetensors/format.h"
#include "safetensors/writer.h"

namespace tessera {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// A tensor of the output, and ours that make it.
struct Output {
  TensorSpec spec;
  HfTensor from;
};

// The tensors of one output file.
struct Shard {
  std::vector<Output> outputs;
  int64_t bytes = 0;
};

Dtype output_dtype(const CheckpointReader& reader, const ConsolidateOptions& options,
                   const std::string& name) {
  const Dtype stored = reader.stored_dtype(name, kStateParam);
  const Dtype dtype = options.dtype.value_or(stored);
  if (!can_convert(stored, dtype))
    fail_user("checkpoint", "tensor '{}' is stored as {}, which does not convert to {}", name,
              dtype_name(stored), dtype_name(dtype));
  return dtype;
}

// The output whose first part is `tensor`. nullopt if `tensor` is a later part of an output, or in
// none.
std::optional<Output> output_of(const CheckpointReader& reader, const TensorInfo& tensor,
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
  return Output{{from.name, output_dtype(reader, options, tensor.name), shape}, from};
}

// Fills files in model order; a tensor larger than a file has one to itself.
std::vector<Shard> plan_shards(const CheckpointReader& reader, const HfTensors& names,
                               const ConsolidateOptions& options) {
  std::vector<Shard> shards(1);
  for (const TensorInfo& tensor : reader.manifest().tensors) {
    const std::optional<Output> output = output_of(reader, tensor, names, options);
    if (!output) continue;
    const Dtype dtype = output->spec.dtype;
    const int64_t bytes = checked_numel(output->spec.shape, dtype) * dtype_size(dtype);
    if (!shards.back().outputs.empty() && bytes > options.max_shard_bytes - shards.back().bytes)
      shards.emplace_back();
    shards.back().outputs.push_back(*output);
    shards.back().bytes += bytes;
  }
  return shards;
}

// [rows, columns] -> [columns, rows] of elements of `size` bytes.
std::vector<std::byte> transpose(const std::vector<std::byte>& from, int64_t rows, int64_t columns,
                                 int64_t size) {
  std::vector<std::byte> to(from.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      std::memcpy(to.data() + (c * rows + r) * size, from.data() + (r * columns + c) * size,
                  static_cast<size_t>(size));
  return to;
}

void write_shard(CheckpointReader& reader, const Shard& shard, const std::filesystem::path& path) {
  std::vector<TensorSpec> specs;
  for (const Output& output : shard.outputs) specs.push_back(output.spec);
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  for (const auto& [spec, from] : shard.outputs) {
    std::vector<std::byte> whole;  // of a tensor that is to be transposed
    for (const std::string& part : from.parts)
      reader.stream(part, kStateParam, spec.dtype, [&](const std::byte* data, int64_t bytes) {
        if (from.transposed)
          whole.insert(whole.end(), data, data + bytes);
        else
          writer.append(data, bytes);
      });
    if (!from.transposed) continue;
    whole = transpose(whole, spec.shape[1], spec.shape[0], dtype_size(spec.dtype));
    writer.append(whole.data(), static_cast<int64_t>(whole.size()));
  }
  writer.finish();
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
  CheckpointReader reader(step_dir);
  const Manifest& manifest = reader.manifest();
  if (!manifest.model.is_object())
    fail_user("checkpoint", "{}: the manifest holds no model configuration", step_dir.string());
  const HfTensors names = options.tensors(manifest.model);
  const std::vector<Shard> shards = plan_shards(reader, names, options);
  if (shards.front().outputs.empty())
    fail_user("checkpoint", "{} holds no tensors", step_dir.string());
  const auto carried = find_hf_files(step_dir);
  const json config = make_config(manifest.model, names.architecture,
                                  shards.front().outputs.front().spec.dtype, carried);

  WholeFolder folder(out_dir);
  ordered_json index;
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(reader, shards[i], folder.partial() / name);
    total += shards[i].bytes;
    for (const Output& output : shards[i].outputs) index["weight_map"][output.spec.name] = name;
  }
  if (shards.size() > 1) {
    index["metadata"]["total_size"] = total;
    write_file_atomic(folder.partial() / "model.safetensors.index.json", index.dump(2) + "\n");
  }
  write_file_atomic(folder.partial() / "config.json", config.dump(2) + "\n");
  if (carried) copy_hf_files(*carried, folder.partial());
  folder.publish();
  return folder.lacks();
}

}  // namespace tessera
