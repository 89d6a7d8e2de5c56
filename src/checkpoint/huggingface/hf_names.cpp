#include "checkpoint/huggingface/hf_names.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace tessera {
namespace {

using Tensor = HuggingFaceFolder::Tensor;

// The names that a file of the whole model may hold.
std::set<std::string> file_names(const HfModel& model) {
  std::set<std::string> names;
  for (const TensorInfo& parameter : model.parameters) names.insert(parameter.name);
  for (const HfTensor& tensor : model.tensors.tensors) names.insert(tensor.name);
  if (model.tensors.tied) names.insert(model.tensors.tied->head);
  return names;
}

// Puts base_prefix before names that lack it. Each name is judged by itself, as transformers does
// it: a head may lie beside a body without the prefix.
void add_base_prefix(HuggingFaceFolder& folder, const HfModel& model) {
  const std::string& prefix = model.tensors.base_prefix;
  if (prefix.empty()) return;
  const std::set<std::string> names = file_names(model);
  bool base = false;
  for (Tensor& tensor : folder.tensors) {
    std::string& name = tensor.entry.name;
    if (names.contains(name) || !names.contains(prefix + name)) continue;
    name.insert(0, prefix);
    base = true;
  }
  const std::string& head = model.tensors.head;
  if (!base || head.empty() || model.tensors.tied) return;
  if (std::none_of(folder.tensors.begin(), folder.tensors.end(),
                   [&](const Tensor& tensor) { return tensor.entry.name == head; }))
    fail_user("import",
              "{} holds a model without its head: names have no '{}' in front, and there is no {}, "
              "which follows from no other tensor here; save the whole {}",
              folder.path.string(), prefix, head, model.tensors.architecture);
}

void check_unique(const HuggingFaceFolder& folder) {
  std::map<std::string, const Tensor*> seen;
  for (const Tensor& tensor : folder.tensors) {
    const auto [other, fresh] = seen.emplace(tensor.entry.name, &tensor);
    if (!fresh)
      fail_user("import", "{}: '{}' and '{}' are both the tensor {}; keep one of them",
                folder.path.string(), other->second->stored_name, tensor.stored_name,
                tensor.entry.name);
  }
}

}  // namespace

std::string without_wrappers(std::string_view name) {
  std::string result;
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.') + 1);  // with its dot; empty: last
    const bool wrapper = part == "_orig_mod." || part == "_fsdp_wrapped_module." ||
                         part == "_checkpoint_wrapped_module." ||
                         (part == "module." && result.empty());
    if (!wrapper) result += part.empty() ? name : part;
    name.remove_prefix(part.empty() ? name.size() : part.size());
  }
  return result;
}

bool is_ignored(const HfTensors& names, std::string_view stored) {
  const std::string name = without_wrappers(stored);
  return std::any_of(names.ignored.begin(), names.ignored.end(),
                     [&](const std::string& end) { return name.ends_with(end); });
}

void take_names(HuggingFaceFolder& folder, const HfModel& model) {
  for (Tensor& tensor : folder.tensors) tensor.entry.name = without_wrappers(tensor.stored_name);
  add_base_prefix(folder, model);
  check_unique(folder);
}

}  // namespace tessera
