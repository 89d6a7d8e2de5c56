#include "checkpoint/huggingface/hf_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/huggingface/hf_names.h"
#include "safetensors/format.h"

namespace tessera {
namespace {

using Tensor = HuggingFaceFolder::Tensor;

// The files of a tied model may hold the head beside the embedding: then the head is dropped, and
// comes back with the embedding that it must equal. If they hold only the head, that is the
// embedding.
std::optional<HfPlan::Twins> take_tied_head(HuggingFaceFolder& folder,
                                            const HfTensors::Tied& tied) {
  const auto find = [&](const std::string& name) {
    return std::find_if(folder.tensors.begin(), folder.tensors.end(),
                        [&](const Tensor& tensor) { return tensor.entry.name == name; });
  };
  const auto head = find(tied.head), embedding = find(tied.embedding);
  if (head == folder.tensors.end()) return std::nullopt;
  if (embedding == folder.tensors.end()) {
    head->entry.name = tied.embedding;
    return std::nullopt;
  }
  HfPlan::Twins twins{*head, *embedding};
  folder.tensors.erase(head);
  return twins;
}

// UserError unless the tensor's elements can be weights.
void check_weight(const HuggingFaceFolder& folder, const Tensor& tensor) {
  const std::string file = folder.files[tensor.file].string();
  if (!can_convert(tensor.entry.dtype, Dtype::kF32))
    fail_user("import", "{}: tensor '{}' is {}; weights must be F32, F64, BF16 or F16", file,
              tensor.entry.name, dtype_name(tensor.entry.dtype));
  if (checked_numel(tensor.entry.shape, Dtype::kF64) < 0)
    fail_user("import", "{}: tensor '{}' is too large", file, tensor.entry.name);
}

// Adds our tensors that one stored tensor holds; the model says how many rows each has.
void add_parts(const Tensor& tensor, const HfTensor& rule, const std::vector<TensorInfo>& ours,
               HfPlan& plan) {
  const std::vector<int64_t>& shape = tensor.entry.shape;
  int64_t row = 0;
  for (const std::string& name : rule.parts) {
    const auto info =
        std::find_if(ours.begin(), ours.end(), [&](const TensorInfo& p) { return p.name == name; });
    if (info == ours.end()) fail("import", "{}: the model has no {}", rule.name, name);
    plan.parts.push_back({*info, tensor, rule.transposed, row});
    row += info->shape[0];
  }
  std::vector<int64_t> expected = plan.parts.back().info.shape;
  expected[0] = row;
  if (rule.transposed) std::reverse(expected.begin(), expected.end());
  if (shape != expected)
    fail_user("import", "{}: tensor '{}' has the shape [{}]; config.json makes it [{}]",
              plan.folder.files[tensor.file].string(), rule.name, fmt::join(shape, ", "),
              fmt::join(expected, ", "));
}

// UserError that lists what does not fit, if a parameter is missing or has another shape: also what
// the files hold besides (`extra`), since a wrong name is both. Else that becomes a note.
void check_parameters(const HfModel& model, const std::vector<Tensor>& extra, HfPlan& plan) {
  Manifest found;
  std::map<std::string, const TensorInfo*> by_name;
  for (const HfPart& part : plan.parts) {
    found.tensors.push_back(part.info);
    by_name[part.info.name] = &part.info;
  }
  const bool fits =
      std::all_of(model.parameters.begin(), model.parameters.end(), [&](const TensorInfo& wanted) {
        const auto part = by_name.find(wanted.name);
        return part != by_name.end() && part->second->shape == wanted.shape;
      });
  if (!fits) {
    for (const Tensor& tensor : extra)
      found.tensors.push_back({tensor.entry.name, tensor.entry.shape});
    check_tensors(found, model.parameters);
  }
  if (extra.empty()) return;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min<size_t>(extra.size(), 5); ++i)
    names.push_back(extra[i].stored_name);
  plan.folder.notes.push_back(fmt::format(
      "{} holds {} that the model does not have, left out: {}{}", plan.folder.path.string(),
      extra.size() == 1 ? "a tensor" : fmt::format("{} tensors", extra.size()),
      fmt::join(names, ", "), extra.size() > names.size() ? ", ..." : ""));
}

}  // namespace

HfPlan plan_hugging_face(const std::filesystem::path& dir, nlohmann::json config,
                         const HfModel& model) {
  HfPlan plan{.folder = open_hugging_face(dir, std::move(config), model.tensors)};
  HuggingFaceFolder& folder = plan.folder;
  take_names(folder, model);
  if (model.tensors.tied) plan.tied = take_tied_head(folder, *model.tensors.tied);
  if (folder.tensors.empty()) fail_user("import", "{} holds no tensors", dir.string());
  if (has_own_code(folder.config))
    folder.notes.push_back(fmt::format(
        "{} names code of its own (auto_map), which is not run: the model is what transformers "
        "computes without it",
        (dir / "config.json").string()));
  std::set<std::string> ours;
  for (const TensorInfo& parameter : model.parameters) ours.insert(parameter.name);
  std::vector<Tensor> extra;
  for (const Tensor& tensor : folder.tensors) {
    const auto& rules = model.tensors.tensors;
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const HfTensor& other) {
      return other.name == tensor.entry.name;
    });
    const bool joined = rule != rules.end();
    if (!joined && !ours.empty() && !ours.contains(tensor.entry.name)) {
      extra.push_back(tensor);
      continue;
    }
    check_weight(folder, tensor);
    if (joined)
      add_parts(tensor, *rule, model.parameters, plan);
    else
      plan.parts.push_back({{tensor.entry.name, tensor.entry.shape}, tensor});
  }
  if (!model.parameters.empty()) check_parameters(model, extra, plan);
  return plan;
}

}  // namespace tessera
