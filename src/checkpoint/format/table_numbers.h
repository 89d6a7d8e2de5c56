#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/format/manifest.h"

namespace tessera {

// The numbers by which an index of pieces knows the tensors and states of a manifest.
class TableNumbers {
 public:
  explicit TableNumbers(const Manifest& manifest) : states_(manifest.states) {
    for (const TensorInfo& tensor : manifest.tensors)
      tensors_.emplace(tensor.name, static_cast<int32_t>(tensors_.size()));
  }

  std::optional<int32_t> tensor(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<int32_t> state(const std::string& name) const {
    const auto found = std::find(states_.begin(), states_.end(), name);
    return found == states_.end() ? std::nullopt
                                  : std::optional(static_cast<int32_t>(found - states_.begin()));
  }

 private:
  std::vector<std::string> states_;
  std::unordered_map<std::string, int32_t> tensors_;
};

}  // namespace tessera
