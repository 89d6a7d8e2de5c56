#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace tessera {

// An axis-aligned part of a tensor: element offsets and sizes per dim. A scalar has no dims.
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> shape;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
  bool operator==(const Box&) const = default;
};

// The box of a whole tensor.
inline Box whole_box(const std::vector<int64_t>& shape) {
  return Box{std::vector<int64_t>(shape.size(), 0), shape};
}

// What one owner holds of a tensor: the elements [begin, end) of `box` in the box's row-major
// order. Tensor parallelism gives the box, the slice of the flat bucket gives the interval.
struct BoxSlice {
  Box box;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t numel() const { return end - begin; }
  bool operator==(const BoxSlice&) const = default;
};

// A run of elements that is contiguous in both slices: positions count from each slice's begin.
struct SharedRun {
  int64_t a_pos;
  int64_t b_pos;
  int64_t numel;
};

// Calls `visit` for every maximal run that a and b (slices of the same tensor) have in common, in
// rising order of b_pos. Both boxes have the same number of dims.
void for_each_shared_run(const BoxSlice& a, const BoxSlice& b,
                         const std::function<void(const SharedRun&)>& visit);

// The range of a's positions from the first to past the last element that a and b have in common,
// with whatever lies between; nullopt if they share nothing.
std::optional<std::pair<int64_t, int64_t>> shared_span(const BoxSlice& a, const BoxSlice& b);

}  // namespace tessera
