#include "base/box.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tessera {
namespace {

// Global linear index of each element of a slice, in the slice's order: the plain definition.
std::vector<int64_t> elements(const BoxSlice& slice, const std::vector<int64_t>& shape) {
  std::vector<int64_t> result;
  for (int64_t p = slice.begin; p < slice.end; ++p) {
    int64_t rest = p, index = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
      index += (slice.box.offset[d] + rest % slice.box.shape[d]) * stride;
      rest /= slice.box.shape[d];
    }
    result.push_back(index);
  }
  return result;
}

void check_pair(const BoxSlice& a, const BoxSlice& b, const std::vector<int64_t>& shape) {
  const std::vector<int64_t> in_a = elements(a, shape), in_b = elements(b, shape);
  std::map<int64_t, int64_t> position_in_a;
  for (size_t i = 0; i < in_a.size(); ++i) position_in_a[in_a[i]] = static_cast<int64_t>(i);

  std::map<int64_t, int64_t> expected, found;  // position in b -> position in a
  for (size_t i = 0; i < in_b.size(); ++i)
    if (const auto at = position_in_a.find(in_b[i]); at != position_in_a.end())
      expected[static_cast<int64_t>(i)] = at->second;
  SharedRun before{-2, -2, 0};
  for_each_shared_run(a, b, [&](const SharedRun& run) {
    EXPECT_GT(run.numel, 0);
    EXPECT_GE(run.b_pos, before.b_pos + before.numel) << "runs must rise";
    EXPECT_FALSE(run.b_pos == before.b_pos + before.numel &&
                 run.a_pos == before.a_pos + before.numel)
        << "runs must be maximal";
    for (int64_t i = 0; i < run.numel; ++i) found[run.b_pos + i] = run.a_pos + i;
    before = run;
  });
  EXPECT_EQ(found, expected);

  const auto span = shared_span(a, b);
  ASSERT_EQ(span.has_value(), !expected.empty());
  if (span) {
    EXPECT_EQ(span->first, expected.begin()->second);
    EXPECT_EQ(span->second, expected.rbegin()->second + 1);
  }
}

TEST(Box, RunsOfKnownSlices) {
  // Rows 1..2 of [4, 6] against columns 2..5: two runs of three, none joined.
  const BoxSlice rows{{{1, 0}, {2, 6}}, 0, 12};
  const BoxSlice columns{{{0, 2}, {4, 3}}, 0, 12};
  std::vector<std::array<int64_t, 3>> runs;
  for_each_shared_run(rows, columns, [&](const SharedRun& run) {
    runs.push_back({run.a_pos, run.b_pos, run.numel});
  });
  EXPECT_EQ(runs, (std::vector<std::array<int64_t, 3>>{{2, 3, 3}, {8, 6, 3}}));
}

TEST(Box, WholeTensorsAreOneRun) {
  const BoxSlice all{whole_box({3, 4, 5}), 0, 60};
  int calls = 0;
  for_each_shared_run(all, all, [&](const SharedRun& run) {
    ++calls;
    EXPECT_EQ(run.numel, 60);
  });
  EXPECT_EQ(calls, 1);
}

TEST(Box, ScalarsAndEmptySlices) {
  const BoxSlice scalar{whole_box({}), 0, 1}, nothing{whole_box({}), 1, 1};
  check_pair(scalar, scalar, {});
  check_pair(scalar, nothing, {});
  const BoxSlice empty{whole_box({0, 3}), 0, 0};
  check_pair(empty, empty, {0, 3});
}

// Any two slices of tensors of one to four dims, among them sizes of 1, against the definition.
TEST(Box, RandomSlicesMatchTheDefinition) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 4000; ++round) {
    std::vector<int64_t> shape(static_cast<size_t>(draw(1, 4)));
    for (int64_t& size : shape) size = draw(1, 5);
    const auto slice = [&] {
      BoxSlice s{whole_box(shape), 0, 0};
      for (size_t d = 0; d < shape.size(); ++d) {
        if (draw(0, 2) == 0) continue;  // whole in this dim
        s.box.offset[d] = draw(0, shape[d] - 1);
        s.box.shape[d] = draw(1, shape[d] - s.box.offset[d]);
      }
      s.begin = draw(0, s.box.numel());
      s.end = draw(s.begin, s.box.numel());
      return s;
    };
    check_pair(slice(), slice(), shape);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace tessera
