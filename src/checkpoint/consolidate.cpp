#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/convert.h"
#include "checkpoint/elements.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/pieces.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/whole_folder.h"

namespace tessera {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// The tensors of one output file.
struct Shard {
  std::vector<TensorSpec> specs;
  int64_t bytes = 0;
};

// Fills files in model order; a tensor larger than a file has one to itself.
std::vector<Shard> plan_shards(const CheckpointReader& reader, const ConsolidateOptions& options) {
  std::vector<Shard> shards(1);
  for (const TensorInfo& tensor : reader.manifest().tensors) {
    // A tied model's head is its embedding; transformers expects no tensor of its own for it.
    if (tensor.name == "lm_head.weight" && is_tied(reader.manifest().model)) continue;
    const Dtype stored = reader.stored_dtype(tensor.name, kStateParam);
    const Dtype dtype = options.dtype.value_or(stored);
    if (!can_convert(stored, dtype))
      fail_user("checkpoint", "tensor '{}' is stored as {}, which does not convert to {}",
                tensor.name, dtype_name(stored), dtype_name(dtype));
    const int64_t bytes = checked_numel(tensor.shape, dtype) * dtype_size(dtype);
    if (!shards.back().specs.empty() && bytes > options.max_shard_bytes - shards.back().bytes)
      shards.emplace_back();
    shards.back().specs.push_back({tensor.name, dtype, tensor.shape});
    shards.back().bytes += bytes;
  }
  return shards;
}

void write_shard(CheckpointReader& reader, const Shard& shard, const std::filesystem::path& path) {
  SafetensorsWriter writer(path, shard.specs, {{"format", "pt"}});
  for (const TensorSpec& spec : shard.specs)
    reader.stream(spec.name, kStateParam, spec.dtype,
                  [&](const std::byte* data, int64_t bytes) { writer.append(data, bytes); });
  writer.finish();
}

// The model's own fields, and what transformers needs besides to know the class.
json make_config(const json& model, Dtype dtype) {
  json config = model;
  if (!config.contains("model_type")) config["model_type"] = "llama";
  if (!config.contains("architectures") && config["model_type"] == "llama")
    config["architectures"] = {"LlamaForCausalLM"};
  config["torch_dtype"] = torch_dtype_name(dtype);
  if (config.contains("dtype")) config["dtype"] = torch_dtype_name(dtype);  // since transformers 5
  return config;
}

}  // namespace

void consolidate(const std::filesystem::path& step_dir, const std::filesystem::path& out_dir,
                 const ConsolidateOptions& options) {
  if (options.max_shard_bytes <= 0)
    fail_user("checkpoint", "max_shard_bytes is {}; the rule is above 0", options.max_shard_bytes);
  CheckpointReader reader(step_dir);
  const Manifest& manifest = reader.manifest();
  if (!manifest.model.is_object())
    fail_user("checkpoint", "{}: the manifest holds no model configuration", step_dir.string());
  const std::vector<Shard> shards = plan_shards(reader, options);
  if (shards.front().specs.empty())
    fail_user("checkpoint", "{} holds no tensors", step_dir.string());
  const json config = make_config(manifest.model, shards.front().specs.front().dtype);

  WholeFolder folder(out_dir);
  ordered_json index;
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(reader, shards[i], folder.partial() / name);
    total += shards[i].bytes;
    for (const TensorSpec& spec : shards[i].specs) index["weight_map"][spec.name] = name;
  }
  if (shards.size() > 1) {
    index["metadata"]["total_size"] = total;
    write_file_atomic(folder.partial() / "model.safetensors.index.json", index.dump(2) + "\n");
  }
  write_file_atomic(folder.partial() / "config.json", config.dump(2) + "\n");
  folder.publish();
}

}  // namespace tessera
