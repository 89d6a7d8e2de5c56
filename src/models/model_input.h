#pragma once

#include <array>
#include <cstdint>

namespace tessera {

// What the samples of a data set are, and what a model is fed with (`data.kind`).
enum class DataKind { kTokens, kImages, kPairs };

struct ModelInput {
  DataKind kind;
  int64_t vocab_size = 0;  // tokens, pairs: ids are below it
  // Images alone.
  std::array<int64_t, 3> image_shape = {};  // channels, height, width
  int64_t image_tokens = 0;                 // between the layers
  int64_t num_labels = 0;
};

}  // namespace tessera
