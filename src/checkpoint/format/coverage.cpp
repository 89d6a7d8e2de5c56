#include "checkpoint/format/coverage.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"

namespace tessera {
namespace {

std::string describe(const Box& box) {
  return fmt::format("box at [{}] of shape [{}]", fmt::join(box.offset, ", "),
                     fmt::join(box.shape, ", "));
}

void check_inside(const std::string& what, const std::vector<int64_t>& shape,
                  const OwnedSlice& owned) {
  const Box& box = owned.slice->box;
  bool inside = box.shape.size() == shape.size();
  for (size_t d = 0; inside && d < shape.size(); ++d)
    inside = box.shape[d] <= shape[d] && box.offset[d] <= shape[d] - box.shape[d];
  if (!inside)
    fail_damaged("checkpoint", "{}: {} in {} does not lie in the tensor's shape [{}]", what,
                 describe(box), *owned.file, fmt::join(shape, ", "));
}

// `owned` are the slices of one box, in rising order.
void check_intervals(const std::string& what, const OwnedSlice* first, const OwnedSlice* last) {
  int64_t cursor = 0;
  const OwnedSlice* before = nullptr;
  for (const OwnedSlice* owned = first; owned != last; before = owned++) {
    const BoxSlice& slice = *owned->slice;
    if (slice.begin < cursor)
      fail_damaged("checkpoint", "{}: elements {} to {} of the {} are both in {} and in {}", what,
                   slice.begin, std::min(cursor, slice.end), describe(slice.box), *before->file,
                   *owned->file);
    if (slice.begin > cursor)
      fail_damaged("checkpoint", "{}: elements {} to {} of the {} are in no file", what, cursor,
                   slice.begin, describe(slice.box));
    cursor = slice.end;
  }
  const Box& box = first->slice->box;
  if (cursor != box.numel())
    fail_damaged("checkpoint", "{}: elements {} to {} of the {} are in no file", what, cursor,
                 box.numel(), describe(box));
}

bool overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (a.offset[d] >= b.offset[d] + b.shape[d] || b.offset[d] >= a.offset[d] + a.shape[d])
      return false;
  return true;
}

// Sweeps along the dim in which the boxes differ most: boxes of tensor parallelism are compared
// with their neighbour only, so the cost is linear in their number.
void check_disjoint(const std::string& what, std::vector<OwnedSlice> boxes) {
  size_t along = 0, most = 0;
  for (size_t d = 0; d < boxes.front().slice->box.shape.size(); ++d) {
    std::set<int64_t> offsets;
    for (const OwnedSlice& owned : boxes) offsets.insert(owned.slice->box.offset[d]);
    if (offsets.size() > most) {
      most = offsets.size();
      along = d;
    }
  }
  const auto low = [&](const OwnedSlice& owned) { return owned.slice->box.offset[along]; };
  std::sort(boxes.begin(), boxes.end(),
            [&](const OwnedSlice& a, const OwnedSlice& b) { return low(a) < low(b); });
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Box& box = boxes[i].slice->box;
    for (size_t j = i + 1; j < boxes.size() && low(boxes[j]) < low(boxes[i]) + box.shape[along];
         ++j)
      if (overlap(box, boxes[j].slice->box))
        fail_damaged("checkpoint", "{}: the {} in {} and the {} in {} overlap", what, describe(box),
                     *boxes[i].file, describe(boxes[j].slice->box), *boxes[j].file);
  }
}

}  // namespace

void check_coverage(const std::string& what, const std::vector<int64_t>& shape,
                    std::vector<OwnedSlice> slices) {
  for (const OwnedSlice& owned : slices) check_inside(what, shape, owned);
  std::erase_if(slices, [](const OwnedSlice& owned) { return owned.slice->numel() == 0; });
  const int64_t numel = whole_box(shape).numel();
  if (numel > 0 && slices.empty())
    fail_damaged("checkpoint", "{}: none of its {} elements are in any file", what, numel);

  const auto box_of = [](const OwnedSlice& owned) {
    return std::tie(owned.slice->box.offset, owned.slice->box.shape);
  };
  std::sort(slices.begin(), slices.end(), [&](const OwnedSlice& a, const OwnedSlice& b) {
    return std::tuple_cat(box_of(a), std::tie(a.slice->begin, a.slice->end)) <
           std::tuple_cat(box_of(b), std::tie(b.slice->begin, b.slice->end));
  });
  std::vector<OwnedSlice> boxes;
  int64_t covered = 0;
  for (size_t first = 0, last; first < slices.size(); first = last) {
    for (last = first; last < slices.size() && box_of(slices[last]) == box_of(slices[first]);)
      ++last;
    check_intervals(what, slices.data() + first, slices.data() + last);
    boxes.push_back(slices[first]);
  }
  if (boxes.size() > 1) check_disjoint(what, boxes);
  for (const OwnedSlice& owned : boxes) covered += owned.slice->box.numel();
  if (covered != numel)
    fail_damaged("checkpoint", "{}: the files hold {} of its {} elements", what, covered, numel);
}

}  // namespace tessera
