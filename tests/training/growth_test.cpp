// What must not grow with steps: memory (pitfall M01) and the number of collectives (M05).
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "base/process/process_memory.h"
#include "parallel/comm/core/operation.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

// One rank's counts at the end of each step, over its world and all groups split from it.
struct Steps {
  std::vector<int64_t> collectives;  // since the start
  std::vector<int64_t> anonymous;    // bytes that the process holds
  int64_t count = 0;
};

// Counts what is started and hands it on. The largest peak of memory is the last thing that ranks
// tell each other in a step.
class Counting : public Communicator {
 public:
  Counting(std::unique_ptr<Communicator> inner, std::shared_ptr<Steps> steps, bool world)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->rank_names()),
        inner_(std::move(inner)),
        steps_(std::move(steps)),
        world_(world) {}

  bool on_one_node() const override { return inner_->on_one_node(); }
  Work start(Operation op) override {
    ++steps_->count;
    const bool ends_step = world_ && op.kind == OperationKind::kAllReduce &&
                           op.reduce == ReduceOp::kMax && op.dtype == at::kDouble;
    Work work = inner_->start(std::move(op));
    if (ends_step) {
      steps_->collectives.push_back(steps_->count);
      steps_->anonymous.push_back(anonymous_bytes());
    }
    return work;
  }
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<Counting>(inner_->split(color, key, std::move(name)), steps_, false);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return inner_->abort_state(); }
  const std::shared_ptr<CommRecord>& record() const override { return inner_->record(); }

 private:
  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<Steps> steps_;
  bool world_;
};

// Rank 0's counts of a run on thread ranks.
Steps counted_run(const Config& config) {
  Steps result;
  const StopSignal stop_signal;
  const int ranks = config.parallel.dp_replicate * config.parallel.dp_shard * config.parallel.tp;
  run_thread_ranks(ranks, [&](Communicator& world) {
    const auto steps = std::make_shared<Steps>();
    train(config, std::make_unique<Counting>(world.split(0, world.rank(), "world"), steps, true),
          stop_signal);
    if (world.rank() == 0) result = *steps;
  });
  return result;
}

TEST(Growth, MemoryIsFlatFromStep200To2000) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "flat");
  sizes(config).num_hidden_layers = 1;
  config.training.steps = 2000;
  config.training.global_batch_size = 4;
  config.training.micro_batch_size = 1;
  config.parallel.dp_shard = 2;
  config.eval.every = 100;
  config.eval.batches = 1;
  config.data.valid = config.data.train;
  const Steps steps = counted_run(config);
  ASSERT_EQ(steps.anonymous.size(), 2000U);
  EXPECT_LT(steps.anonymous[1999] - steps.anonymous[199], 4 << 20);
}

TEST(Growth, TheLogSaysWhatMemoryIsFor) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "said");
  config.training.steps = 2;
  config.parallel.dp_shard = 2;
  run(config);
  std::ifstream in(folder / "said" / "logs" / "train.log");
  const std::string log((std::istreambuf_iterator<char>(in)), {});
  for (const char* part : {"memory of rank 0: master weights", "moments", "gather ring",
                           "from the parameter counts: ", "memory of 2 ranks: the largest",
                           "measured after two steps, largest rank: peak"})
    EXPECT_NE(log.find(part), std::string::npos) << part << " in: " << log;
}

TEST(Growth, EveryStepHasTheSameCollectives) {
  const TemporaryFolder folder;
  for (int zero = 0; zero <= 3; ++zero) {
    Config config = tiny_config(folder, "steady" + std::to_string(zero));
    config.training.steps = 20;
    config.training.micro_batch_size = 2;
    config.parallel.zero = zero;
    config.parallel.dp_shard = 2;
    config.parallel.dp_replicate = 2;
    const Steps steps = counted_run(config);
    ASSERT_EQ(steps.collectives.size(), 20U);
    const auto of_step = [&](size_t n) {
      return steps.collectives[n - 1] - steps.collectives[n - 2];
    };
    EXPECT_EQ(of_step(2), of_step(20)) << "zero " << zero;
    EXPECT_GT(of_step(20), 10) << "zero " << zero;
  }
}

}  // namespace
}  // namespace tessera
