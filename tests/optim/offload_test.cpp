// States in "pinned" memory, which on the host is plain memory: the order in which they are
// streamed, and that a run with them equals one without, bit for bit.
#include "optim/optimizer.h"
#include "parallel/executor/chain.h"

namespace tessera {
namespace {

OffloadStore::States states(double value) {
  return {at::full({3}, value, at::kFloat), {at::full({3}, value + 1, at::kFloat)}, {}};
}

TEST(OffloadStore, ReadsOneBucketAheadAndWritesBackBehind) {
  std::string trace;
  OffloadStore store(Device(), [&](const std::string& line) { trace += line + "\n"; });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(store.add(states(i), i != 2, false), i);
  store.allocate();
  for (const int bucket : {0, 1, 3}) {
    const StoreUse use(store, bucket);
    EXPECT_EQ(store.on_device(bucket).master[0].item<float>(), static_cast<float>(bucket));
    EXPECT_EQ(store.on_device(bucket).moments.at(0)[2].item<float>(), bucket + 1.f);
  }
  EXPECT_EQ(trace,
            "load 0\nload 1\nupdate 0\nstore 0\n"
            "load 3\nupdate 1\nstore 1\n"
            "update 3\nstore 3\n");
}

TEST(OffloadStore, WhatAnUpdateWritesComesBackAndItsGradientDoesNot) {
  OffloadStore store{Device()};
  OffloadStore::States host = states(1);
  host.grad = at::full({3}, 7.f);
  store.add(host, true, true);
  store.allocate();
  {
    const StoreUse use(store, 0);
    OffloadStore::States device = store.on_device(0);
    device.master.sub_(device.grad);
    device.moments[0].fill_(5);
    device.grad.zero_();
  }
  store.release();
  EXPECT_EQ(host.master[1].item<float>(), -6.f);
  EXPECT_EQ(host.moments[0][1].item<float>(), 5.f);
  EXPECT_EQ(host.grad[1].item<float>(), 7.f);
  const at::Tensor halves = at::zeros({3}, at::kBFloat16);
  store.load_master(0, halves);
  EXPECT_EQ(halves[2].item<float>(), -6.f);
  MemoryLedger ledger;
  store.add_to(ledger);
  EXPECT_EQ(ledger.bytes(MemoryClass::kStaging), 2 * 3 * 256 + 12);
}

// x <- x w (v): the first stage makes x from tokens, the last one sums up and may read the first
// one's weight too.
class Product : public Stage {
 public:
  Product(int index, int stages, Mesh& mesh, Product* tied)
      : Stage("stage" + std::to_string(index), mesh.tp(), mesh.tp_rank()),
        first_(index == 0),
        last_(index + 1 == stages),
        weight_(table_.add({name() + ".w", {40}, Placement::replicate(), Initializer::normal(1)})),
        frozen_(table_.add({.name = name() + ".v",
                            .shape = {40},
                            .tp = Placement::replicate(),
                            .init = Initializer::constant(1.25),
                            .trainable = false})),
        tied_(tied ? &borrow(tied->weight_) : nullptr) {}

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    at::Tensor x = first_ ? batch.tokens.to(weight_.value.scalar_type()) : inputs[0];
    x = x * weight_.value * frozen_.value;
    if (tied_) x = x * tied_->value;
    if (last_) x = (x.sum(1) * batch.weights.select(1, 0)).sum().to(at::kFloat);
    return {x};
  }

 private:
  bool first_, last_;
  Parameter& weight_;
  Parameter& frozen_;
  Parameter* tied_;
};

struct Result {
  std::vector<at::Tensor> states;
  std::vector<double> losses;
};

// Three steps of AdamW by rank 0 of a mesh, of three micro-batches each.
Result train(const ShardingPolicy& policy, MeshShape shape) {
  Result result;
  run_thread_ranks(shape.world(), [&](Communicator& world) {
    Mesh mesh(shape, world.split(0, world.rank(), "world"));
    Stages stages;
    for (int i = 0; i < 4; ++i)
      stages.push_back(std::make_unique<Product>(
          i, 4, mesh, i == 3 ? static_cast<Product*>(stages[0].get()) : nullptr));
    const BucketSet set = make_buckets(pointers(stages), mesh, policy);
    const auto buckets = set.pointers();
    EXPECT_EQ(set.offload != nullptr, policy.offload_optimizer);
    for (FlatBucket* bucket : buckets) initialize_weights(*bucket, 7);
    StepExecutor executor(pointers(stages), buckets, set.of_stage, {});
    std::vector<double> losses;
    for (int step = 1; step <= 3; ++step) {
      for (int i = 0; i < 3; ++i) {
        const MicroBatch batch{
            at::full({2, 40}, 1 + mesh.dp_rank() + i, at::kLong), {}, at::full({2, 1}, 0.01), {}};
        losses.push_back(
            executor.forward_backward(batch, {.first = i == 0, .last = i == 2}).item<double>());
      }
      apply_update(buckets, {}, {1e-2, step, {}});
      executor.parameters_changed();
    }
    if (world.rank() != 0) return;
    result.losses = losses;
    for (FlatBucket* bucket : buckets) {
      bucket->settle();
      result.states.push_back(bucket->master().clone());
      for (const at::Tensor& moment : bucket->moments()) result.states.push_back(moment.clone());
    }
  });
  return result;
}

TEST(Offload, EqualsARunWithoutBitForBit) {
  for (const MeshShape shape : {MeshShape{1, 1, 1}, MeshShape{1, 3, 1}, MeshShape{2, 2, 1}}) {
    for (const at::ScalarType params : {at::kFloat, at::kBFloat16}) {
      for (int zero = 0; zero <= 3; ++zero) {
        ShardingPolicy policy{.zero = zero, .params = params};
        const Result kept = train(policy, shape);
        policy.offload_optimizer = true;
        for (const bool gradients : {false, true}) {
          if (gradients && policy.keeps_full_gradients()) continue;
          policy.offload_gradients = gradients;
          SCOPED_TRACE(fmt::format("zero {}, {} x {}, {}, gradients {}", zero, shape.dp_replicate,
                                   shape.dp_shard, c10::toString(params), gradients));
          const Result offloaded = train(policy, shape);
          EXPECT_EQ(offloaded.losses, kept.losses);
          ASSERT_EQ(offloaded.states.size(), kept.states.size());
          for (size_t i = 0; i < kept.states.size(); ++i)
            EXPECT_TRUE(at::equal(offloaded.states[i], kept.states[i])) << "state " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
