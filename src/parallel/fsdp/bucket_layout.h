#pragma once

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"

namespace tessera {

// The part of one parameter that lies in a range of the flat tensor.
struct Segment {
  Parameter* parameter;
  BoxSlice slice;        // where it lies in the whole tensor
  int64_t shard_offset;  // its first element in the states that hold the range
};

// Where the packs of a bucket lie in its flat tensor: each starts at a multiple of 64 elements, a
// pack's parts have no gap, and the end is padded so that `shards` equal slices of a multiple of 64
// elements come out. All ranks of a tp group have the same offsets, even where their parts differ
// by a row (Parameter::reserved), so what they hold alike is cut alike.
struct BucketLayout {
  BucketLayout(std::vector<ParameterPack*> packs, int shards);

  // The parameters' parts in elements [begin, end), in states whose first element is `origin`.
  std::vector<Segment> segments(int64_t begin, int64_t end, int64_t origin) const;

  std::vector<ParameterPack*> packs;
  std::vector<int64_t> offsets;  // of the packs
  int64_t numel = 0;
};

}  // namespace tessera
