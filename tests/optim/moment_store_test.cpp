// The optimizer tells the store of the moments which bucket it updates: without that a store on a
// disk could neither read ahead nor let go.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "optim/optimizer.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/one_bucket.h"

namespace tessera {
namespace {

class RecordingStore : public MomentStore {
 public:
  StoredMoments add_bucket(int count, int64_t numel, at::ScalarType dtype) override {
    StoredMoments stored{buckets_++, {}};
    for (int i = 0; i < count; ++i) stored.moments.push_back(at::zeros({numel}, dtype));
    return stored;
  }
  void begin(int bucket) override { calls.push_back(fmt::format("begin {}", bucket)); }
  void end(int bucket) noexcept override { calls.push_back(fmt::format("end {}", bucket)); }
  void release() override {}

  std::vector<std::string> calls;

 private:
  int buckets_ = 0;
};

TEST(MomentStore, HearsOfEachBucketThatIsUpdatedInOrder) {
  Mesh mesh({1, 1, 1}, make_self_communicator());
  RecordingStore store;
  ParameterTable tables[] = {{1, 0}, {1, 0}, {1, 0}};
  BucketOptions options;
  options.policy.moments_on_disk = true;
  options.moments = &store;
  std::vector<std::unique_ptr<FlatBucket>> buckets;
  for (int i = 0; i < 3; ++i) {
    tables[i].add({"weight", {8, 8}, Placement::replicate(), Initializer()});
    options.trainable = i != 1;
    std::vector<ParameterPack*> packs = {&tables[i].packs()[0]};
    buckets.push_back(std::make_unique<FlatBucket>("bucket", packs, mesh, options));
  }
  at::Tensor(buckets[2]->grad()).fill_(1);
  apply_update({buckets[0].get(), buckets[1].get(), buckets[2].get()}, {}, {1e-3, 1, {}});
  EXPECT_EQ(store.calls, (std::vector<std::string>{"begin 0", "end 0", "begin 1", "end 1"}));
  EXPECT_GT(buckets[2]->moments()[0][0].item<float>(), 0);
}

}  // namespace
}  // namespace tessera
