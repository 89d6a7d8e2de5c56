#include "parallel/parameter.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

Parameter part(const Placement& placement, std::vector<int64_t> shape, int tp, int rank) {
  ParameterTable table(tp, rank);
  return table.add({"p", std::move(shape), placement, {}});
}

TEST(Placement, UnevenPartsDifferByARowAndCoverAll) {
  for (const int64_t rows : {4, 5, 7, 8, 23}) {
    int64_t next = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const Parameter p = part(Placement::uneven_shard(0), {rows, 3}, 4, rank);
      EXPECT_EQ(p.box.offset, (std::vector<int64_t>{next, 0}));
      EXPECT_GE(p.box.shape[0], rows / 4);
      EXPECT_LE(p.box.shape[0], (rows + 3) / 4);
      EXPECT_EQ(p.reserved, (rows + 3) / 4 * 3);  // on every rank alike
      next += p.box.shape[0];
    }
    EXPECT_EQ(next, rows);
  }
}

TEST(Placement, CopiesOfAPartAreNeighbours) {
  for (int rank = 0; rank < 8; ++rank) {
    const Placement placement = Placement::shard(0, 4);
    const Parameter p = part(placement, {6, 3}, 8, rank);
    EXPECT_EQ(p.box, (Box{{rank / 4 * 3, 0}, {3, 3}}));
    EXPECT_EQ(placement.copies(8), 4);
    EXPECT_EQ(placement.copy(rank), rank % 4);
  }
  EXPECT_EQ(Placement::replicate().copies(8), 8);
  EXPECT_EQ(Placement::replicate().copy(5), 5);
  EXPECT_EQ(Placement::shard(1).copies(8), 1);
  EXPECT_EQ(Placement::shard(1).copy(5), 0);
}

TEST(Placement, SaysWhoseGradientsAreSummed) {
  ParameterSpec spec{"p", {4}, Placement::replicate(), {}};
  EXPECT_FALSE(spec.sums_gradient_over_tp());
  spec.partial_gradient = true;
  EXPECT_TRUE(spec.sums_gradient_over_tp());
  spec.tp = Placement::shard(0);
  EXPECT_FALSE(spec.sums_gradient_over_tp());
  spec.tp = Placement::shard(0, 2);
  EXPECT_TRUE(spec.sums_gradient_over_tp());
}

void expect_refused(const Placement& placement, std::vector<int64_t> shape, int tp,
                    const std::string& message) {
  try {
    part(placement, std::move(shape), tp, 0);
    FAIL() << "accepted; expected: " << message;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(Placement, RefusesWhatDoesNotDivide) {
  expect_refused(Placement::shard(0), {6, 2}, 4, "p: dim 0 of size 6 does not divide by tp 4");
  expect_refused(Placement::shard(1), {4, 3}, 2, "p: dim 1 of size 3 does not divide by tp 2");
  expect_refused(Placement::uneven_shard(0), {3}, 4, "size 3 has no row for every rank of tp 4");
  expect_refused(Placement::shard(0, 3), {6}, 4, "p: 3 copies of each part; they must divide tp 4");
  expect_refused(Placement::shard(0, 2), {3}, 4, "does not divide by tp 4 / 2 copies");
}

}  // namespace
}  // namespace tessera
