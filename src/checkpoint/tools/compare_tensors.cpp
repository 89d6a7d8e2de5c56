#include "checkpoint/tools/compare_tensors.h"

#include <fmt/ranges.h>

#include <map>

namespace tessera {

std::string TensorsDiffer::Shape::text() const {
  return fmt::format("{} is [{}] and [{}]", tensor, fmt::join(a, ", "), fmt::join(b, ", "));
}

TensorsDiffer compare_tensors(const Manifest& a, const Manifest& b) {
  std::map<std::string, const TensorInfo*> left;  // of b, not found in a yet
  for (const TensorInfo& tensor : b.tensors) left[tensor.name] = &tensor;
  TensorsDiffer differ;
  for (const TensorInfo& tensor : a.tensors) {
    const auto other = left.find(tensor.name);
    if (other == left.end()) {
      differ.only_a.push_back(tensor.name);
      continue;
    }
    if (other->second->shape != tensor.shape)
      differ.shapes.push_back({tensor.name, tensor.shape, other->second->shape});
    left.erase(other);
  }
  for (const TensorInfo& tensor : b.tensors)
    if (left.contains(tensor.name)) differ.only_b.push_back(tensor.name);
  return differ;
}

}  // namespace tessera
