#include "base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

using Words = std::array<uint32_t, 4>;

// The known-answer vectors of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox(0).block(0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}).block(~uint64_t{0}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822).block(0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<float> normals(uint64_t key, std::string_view stream, uint64_t first, int64_t count,
                           double std_dev = 1) {
  std::vector<float> out(static_cast<size_t>(count));
  Philox(key).normals(stream_of(stream), first, std_dev, out.data(), count);
  return out;
}

TEST(Philox, NormalsHaveTheMomentsOfANormal) {
  constexpr int kCount = 400000;
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, before = 0;
  for (const double x : normals(42, "weight", 0, kCount)) {
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    neighbours += x * before;
    before = x;
  }
  // Five standard errors of each mean: sqrt(var / n) with var 1, 2, 96, 1.
  EXPECT_NEAR(sum / kCount, 0, 5 * std::sqrt(1.0 / kCount));
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(fourth / kCount, 3, 5 * std::sqrt(96.0 / kCount));
  EXPECT_NEAR(neighbours / kCount, 0, 5 * std::sqrt(1.0 / kCount));
}

// A number belongs to its element: a run that starts or ends anywhere holds the same ones.
TEST(Philox, NormalsDoNotDependOnTheRun) {
  const std::vector<float> all = normals(7, "w", 0, 50, 0.02);
  for (uint64_t first = 0; first < 10; ++first)
    for (int64_t count = 0; count < 12; ++count) {
      const std::vector<float> part = normals(7, "w", first, count, 0.02);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<long>(first)));
    }
}

TEST(Philox, StreamsAndSeedsDiffer) {
  EXPECT_NE(normals(1, "a", 0, 4), normals(1, "b", 0, 4));
  EXPECT_NE(normals(1, "a", 0, 4), normals(2, "a", 0, 4));
  EXPECT_EQ(normals(1, "a", 0, 4), normals(1, "a", 0, 4));
}

// FNV-1a's published test values: names must not change meaning, or initial weights would.
TEST(Philox, StreamOfIsFnv1a) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(stream_of("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace tessera
