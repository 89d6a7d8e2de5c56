#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/box.h"

namespace tessera {

// A stored slice of a tensor and the file that holds it.
struct OwnedSlice {
  const BoxSlice* slice;
  const std::string* file;
};

// DamagedError unless every element of a tensor of `shape` lies in exactly one of the slices: the
// intervals of each box tile it, and the boxes tile the tensor. `what` names the tensor in
// messages.
void check_coverage(const std::string& what, const std::vector<int64_t>& shape,
                    std::vector<OwnedSlice> slices);

}  // namespace tessera
