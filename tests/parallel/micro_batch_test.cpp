#include "parallel/micro_batch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

// A tensor that for_each_tensor() left out would stay on the host when the others are moved.
TEST(MicroBatch, EachOfItsTensorsIsVisited) {
  MicroBatch batch;
  size_t visited = 0;
  batch.for_each_tensor([&](at::Tensor& tensor) {
    EXPECT_FALSE(tensor.defined());
    tensor = at::full({1}, static_cast<double>(++visited));
  });
  EXPECT_EQ(visited, sizeof(MicroBatch) / sizeof(at::Tensor));
  EXPECT_EQ(batch.tokens.item<float>(), 1);
  EXPECT_EQ(batch.source_lengths.item<float>(), 7);
}

TEST(MicroBatch, OnTheHostItIsTheSameTensors) {
  const MicroBatch batch{.tokens = at::ones({2, 3}, at::kLong), .weights = at::ones({2, 3})};
  const MicroBatch moved = batch.to(Device());
  EXPECT_TRUE(moved.tokens.is_same(batch.tokens));
  EXPECT_TRUE(moved.weights.is_same(batch.weights));
  EXPECT_FALSE(moved.targets.defined());
  EXPECT_FALSE(moved.images.defined());
}

}  // namespace
}  // namespace tessera
