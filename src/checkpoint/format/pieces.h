#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/box.h"
#include "base/dtype.h"

namespace tessera {

// The states that a parameter can have in a checkpoint. Names are part of the format.
inline constexpr const char* kStateParam = "param";          // master weights
inline constexpr const char* kStateExpAvg = "exp_avg";       // Adam's first moment
inline constexpr const char* kStateExpAvgSq = "exp_avg_sq";  // Adam's second moment
inline constexpr const char* kStateMomentum = "momentum";    // SGD's

// One tensor of the model as a checkpoint knows it: a row of the manifest's parameter table.
struct TensorInfo {
  std::string name;  // Hugging Face's name, such as model.layers.0.self_attn.q_proj.weight
  std::vector<int64_t> shape;
  // Its states, where it lacks some of the manifest's (a frozen parameter has no moments); empty:
  // all of them.
  std::vector<std::string> states = {};
  bool operator==(const TensorInfo&) const = default;
};

// A rank's part of one state of one tensor: where it lies in the global tensor, and the bytes. When
// saving, data is read; when loading, it is filled. Elements are contiguous.
struct Piece {
  std::string tensor;
  std::string state;
  BoxSlice slice;
  Dtype dtype = Dtype::kF32;
  std::byte* data = nullptr;  // slice.numel() elements
  // The piece is held alike by `replicas` ranks (0 <= replica < replicas): each writes an equal
  // part.
  int replica = 0;
  int replicas = 1;
  bool on_device = false;  // data is memory of the rank's device, not of the host; only in a save
};

}  // namespace tessera
