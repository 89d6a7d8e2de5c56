#include "parallel/executor/memory_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/executor/step_executor.h"

namespace tessera {
namespace {

// Parameters and no computation.
class Declared : public Stage {
 public:
  Declared(std::string name, const std::vector<ParameterSpec>& specs)
      : Stage(std::move(name), /*tp=*/1, /*tp_rank=*/0) {
    for (const ParameterSpec& spec : specs) table_.add(spec);
  }
  void borrow_from(Stage& other, size_t index) { borrow(other.table().parameters()[index]); }
  TensorList forward(const TensorList& inputs, const MicroBatch&) override { return inputs; }
};

ParameterSpec spec(const std::string& name, std::vector<int64_t> shape) {
  ParameterSpec result;
  result.name = name;
  result.shape = std::move(shape);
  return result;
}

// A chain of odd sizes, with a frozen, a kept and a tied parameter and a stage without any.
struct Chain {
  Chain() {
    ParameterSpec frozen = spec("first.frozen", {33});
    frozen.trainable = false;
    ParameterSpec kept = spec("second.kept", {129});
    kept.keep_fp32 = true;
    add("first", {spec("first.tied", {31, 7}), spec("first.plain", {1}), frozen});
    add("second", {spec("second.plain", {40, 40}), kept, spec("second.scalar", {})});
    add("empty", {});
    add("third", {spec("third.plain", {1001})});
    add("last", {spec("last.plain", {17, 3})}).borrow_from(*stages[0], 0);
    for (const auto& stage : stages) pointers.push_back(stage.get());
  }

  Declared& add(const std::string& name, const std::vector<ParameterSpec>& specs) {
    stages.push_back(std::make_unique<Declared>(name, specs));
    return *stages.back();
  }

  std::vector<std::unique_ptr<Declared>> stages;
  std::vector<Stage*> pointers;
};

std::vector<ShardingPolicy> policies() {
  std::vector<ShardingPolicy> all;
  for (int zero = 0; zero <= 3; ++zero)
    for (const at::ScalarType params : {at::kFloat, at::kBFloat16, at::kDouble})
      for (const bool per_micro_batch : {true, false})
        for (const GradReduce reduce :
             {GradReduce::kWide, GradReduce::kBf16, GradReduce::kBf16Wire})
          all.push_back({.zero = zero,
                         .reduce_per_micro_batch = per_micro_batch,
                         .params = params,
                         .reduce = reduce,
                         .moments = zero == 1 ? 1 : 2,
                         .moment_dtype = zero == 2 ? at::kBFloat16 : at::kFloat});
  for (size_t i = 0, count = all.size(); i < count; i += 5) {
    all.push_back(all[i]);
    all.back().offload_optimizer = true;
    all.back().offload_gradients = i % 2 == 0;
  }
  return all;
}

std::vector<ExecutorOptions> schedules() {
  std::vector<ExecutorOptions> all(3);
  all[1].prefetch = 2;
  all[1].keep_gathered = 2;
  all[1].recompute_every = 1;
  all[2].overlap = false;
  all[2].poison_released = true;
  return all;
}

// The ledger counts tensors that exist; the model never sees them. With the buckets' padded sizes
// they agree to the byte in each class, with the bare parameter counts up to that padding.
TEST(MemoryModel, AgreesWithTheLedgerInEveryClass) {
  for (const int shards : {1, 2, 3}) {
    run_thread_ranks(2 * shards, [&](Communicator& world) {
      const MeshShape shape{2, shards, 1};
      Mesh mesh(shape, world.split(0, world.rank(), "world"));
      for (const ShardingPolicy& policy : policies()) {
        for (const ExecutorOptions& options : schedules()) {
          Chain chain;
          const BucketPlan plan = plan_buckets(chain.pointers, policy);
          ChainSize size = chain_size(chain.pointers, plan, options);
          const MemoryLedger bare = predict_memory(size, shape, policy, options);
          const BucketSet set = make_buckets(plan, mesh);
          const StepExecutor executor(chain.pointers, set.pointers(), set.of_stage, options);
          MemoryLedger ledger = executor.ledger();
          if (set.offload) set.offload->add_to(ledger);
          int64_t padding = 0;
          for (size_t i = 0; i < size.buckets.size(); ++i) {
            padding += set.buckets[i]->numel() - size.buckets[i].numel;
            size.buckets[i].numel = set.buckets[i]->numel();
          }
          const MemoryLedger padded = predict_memory(size, shape, policy, options);
          for (int i = 0; i < kMemoryClasses; ++i) {
            const auto memory_class = static_cast<MemoryClass>(i);
            EXPECT_EQ(ledger.bytes(memory_class), padded.bytes(memory_class))
                << memory_class_name(memory_class) << ", zero " << policy.zero << ", " << shards
                << " shards";
            EXPECT_GE(ledger.bytes(memory_class), bare.bytes(memory_class));
          }
          // A padded element is held at most twice by each of eight classes, in up to 8 bytes.
          EXPECT_LE(ledger.total() - bare.total(), 16 * 8 * padding);
        }
      }
    });
  }
}

// The table of memory_model.h, literally.
TEST(MemoryModel, IsTheTableOfZero) {
  const int64_t p = int64_t{1} << 20;
  const ChainSize chain{{{p, at::kFloat, true, 1}}, {{{0}, true}}};
  const ChainSize halves{{{p, at::kBFloat16, true, 1}}, {{{0}, true}}};
  const auto states = [](const MemoryLedger& ledger) {
    return ledger.bytes(MemoryClass::kParameters) + ledger.bytes(MemoryClass::kMaster) +
           ledger.bytes(MemoryClass::kGradients) + ledger.bytes(MemoryClass::kMoments);
  };
  for (const int64_t d : {2, 4}) {
    const std::vector<int64_t> fp32 = {16 * p, 8 * p + 8 * p / d, 4 * p + 12 * p / d, 16 * p / d};
    const std::vector<int64_t> bf16 = {18 * p, 6 * p + 12 * p / d, 2 * p + 16 * p / d, 16 * p / d};
    for (int zero = 0; zero <= 3; ++zero) {
      const MeshShape mesh{1, static_cast<int>(d), 1};
      EXPECT_EQ(states(predict_memory(chain, mesh, {.zero = zero}, {})), fp32[zero]);
      EXPECT_EQ(states(predict_memory(halves, mesh, {.zero = zero, .params = at::kBFloat16}, {})),
                bf16[zero]);
    }
  }
}

}  // namespace
}  // namespace tessera
