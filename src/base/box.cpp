#include "base/box.h"

#include <algorithm>

namespace tessera {
namespace {

// The intersection of two boxes as rows: row r is a run of `row` elements that is contiguous in
// both boxes and cannot be made longer. Positions of rows rise with r in both boxes, since both
// walk the same coordinates in row-major order.
struct Rows {
  std::vector<int64_t> outer;     // sizes of the dims that number the rows
  std::vector<int64_t> a_stride;  // what a step in an outer dim means in either box
  std::vector<int64_t> b_stride;
  int64_t a_base = 0;  // position of the intersection's first element in either box
  int64_t b_base = 0;
  int64_t row = 1;
  int64_t count = 1;

  std::pair<int64_t, int64_t> start(int64_t r) const {
    int64_t a = a_base, b = b_base;
    for (size_t d = outer.size(); d-- > 0; r /= outer[d]) {
      const int64_t i = r % outer[d];
      a += i * a_stride[d];
      b += i * b_stride[d];
    }
    return {a, b};
  }
};

// False if the boxes share nothing.
bool intersect(const Box& a, const Box& b, Rows& rows) {
  const size_t dims = a.shape.size();
  std::vector<int64_t> shape(dims), a_stride(dims), b_stride(dims);
  int64_t a_step = 1, b_step = 1;
  bool whole = true;  // all dims to the right are whole in both boxes, so rows join up
  for (size_t d = dims; d-- > 0;) {
    const int64_t low = std::max(a.offset[d], b.offset[d]);
    const int64_t high = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    if (low >= high) return false;
    shape[d] = high - low;
    rows.a_base += (low - a.offset[d]) * a_step;
    rows.b_base += (low - b.offset[d]) * b_step;
    a_stride[d] = a_step;
    b_stride[d] = b_step;
    if (whole) {
      rows.row *= shape[d];
    } else {
      rows.outer.insert(rows.outer.begin(), shape[d]);
      rows.a_stride.insert(rows.a_stride.begin(), a_step);
      rows.b_stride.insert(rows.b_stride.begin(), b_step);
      rows.count *= shape[d];
    }
    whole = whole && shape[d] == a.shape[d] && shape[d] == b.shape[d];
    a_step *= a.shape[d];
    b_step *= b.shape[d];
  }
  return true;
}

// The first row in [0, count) for which `test` holds, count if there is none. Once it holds, it
// holds for all later rows: a slice may be one of many, so its rows are found by bisection.
template <typename Test>
int64_t first_row(const Rows& rows, Test test) {
  int64_t low = 0, high = rows.count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const auto [a_row, b_row] = rows.start(middle);
    if (test(a_row, b_row))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// The part [skip, stop) of a row that lies in both intervals.
struct Cut {
  int64_t skip;
  int64_t stop;
};

Cut cut(const Rows& rows, const BoxSlice& a, const BoxSlice& b, int64_t a_row, int64_t b_row) {
  return {std::max({int64_t{0}, a.begin - a_row, b.begin - b_row}),
          std::min({rows.row, a.end - a_row, b.end - b_row})};
}

// Numbers of the rows that may have elements in both intervals.
std::pair<int64_t, int64_t> rows_within(const Rows& rows, const BoxSlice& a, const BoxSlice& b) {
  return {first_row(rows,
                    [&](int64_t a_row, int64_t b_row) {
                      return a_row + rows.row > a.begin && b_row + rows.row > b.begin;
                    }),
          first_row(rows, [&](int64_t a_row, int64_t b_row) {
            return a_row >= a.end || b_row >= b.end;
          })};
}

}  // namespace

void for_each_shared_run(const BoxSlice& a, const BoxSlice& b,
                         const std::function<void(const SharedRun&)>& visit) {
  Rows rows;
  if (a.numel() <= 0 || b.numel() <= 0 || !intersect(a.box, b.box, rows)) return;
  const auto [first, last] = rows_within(rows, a, b);
  for (int64_t r = first; r < last; ++r) {
    const auto [a_row, b_row] = rows.start(r);
    const auto [skip, stop] = cut(rows, a, b, a_row, b_row);
    if (skip < stop) visit({a_row + skip - a.begin, b_row + skip - b.begin, stop - skip});
  }
}

std::optional<std::pair<int64_t, int64_t>> shared_span(const BoxSlice& a, const BoxSlice& b) {
  Rows rows;
  if (a.numel() <= 0 || b.numel() <= 0 || !intersect(a.box, b.box, rows)) return std::nullopt;
  auto [first, last] = rows_within(rows, a, b);
  // Rows at either end can lie in a gap of the intervals: the first may begin after both end.
  std::optional<std::pair<int64_t, int64_t>> span;
  for (; first < last && !span; ++first) {
    const auto [a_row, b_row] = rows.start(first);
    const auto [skip, stop] = cut(rows, a, b, a_row, b_row);
    if (skip < stop) span.emplace(a_row + skip - a.begin, a_row + stop - a.begin);
  }
  for (; first < last; --last) {
    const auto [a_row, b_row] = rows.start(last - 1);
    const auto [skip, stop] = cut(rows, a, b, a_row, b_row);
    if (skip < stop) {
      span->second = a_row + stop - a.begin;
      break;
    }
  }
  return span;
}

}  // namespace tessera
