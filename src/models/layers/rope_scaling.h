#pragma once

#include <cstdint>

namespace tessera {

// How the rotary frequencies of a model are stretched beyond the length it was first trained on.
enum class RopeScalingType { kNone, kLinear, kLlama3 };

struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 1.0;  // frequencies are divided by it; llama3: the low ones alone
  // llama3: wavelengths above original / low_freq_factor are stretched in full, those below
  // original / high_freq_factor not at all, those between in part.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;
  bool operator==(const RopeScaling&) const = default;
};

}  // namespace tessera
