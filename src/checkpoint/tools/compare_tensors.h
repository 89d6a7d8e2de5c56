#pragma once

#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"

namespace tessera {

// How the tensors of two checkpoints differ by name and shape.
struct TensorsDiffer {
  struct Shape {
    std::string tensor;
    std::vector<int64_t> a, b;
    std::string text() const;  // "NAME is [2, 3] and [3, 2]"
  };
  std::vector<std::string> only_a, only_b;  // names, in their order
  std::vector<Shape> shapes;                // of tensors that both have

  bool none() const { return only_a.empty() && only_b.empty() && shapes.empty(); }
};

TensorsDiffer compare_tensors(const Manifest& a, const Manifest& b);

}  // namespace tessera
