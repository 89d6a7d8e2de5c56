// The order of everything that the executor does, for four stages at each policy, against golden
// text (executor/golden/*.txt), and the same on every rank.
#include <fstream>
#include <sstream>

#include "parallel/executor/chain.h"
#include "support/folders.h"

namespace tessera {
namespace {

// y = w x + b, elementwise; the first stage makes x from tokens, the last one sums up.
class Affine : public Stage {
 public:
  enum class Place { kFirst, kMiddle, kLast };

  Affine(const std::string& name, Place place, Mesh& mesh)
      : Stage(name, mesh.tp(), mesh.tp_rank()),
        place_(place),
        weight_(table_.add({name + ".w", {4}, Placement::replicate(), Initializer::normal(1.0)})) {}

  // Uses the first stage's weight too.
  void tie(Affine& first) { tied_ = &borrow(first.weight_); }

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    at::Tensor x = place_ == Place::kFirst ? batch.tokens.to(at::kFloat) : inputs[0];
    x = x * weight_.value;
    if (tied_) x = x * tied_->value;
    if (place_ == Place::kLast) x = (x.sum(1) * batch.weights.select(1, 0)).sum();
    return {x};
  }

 private:
  Place place_;
  Parameter& weight_;
  Parameter* tied_ = nullptr;
};

Stages make_stages(Mesh& mesh, bool tied) {
  Stages stages;
  stages.push_back(std::make_unique<Affine>("embed", Affine::Place::kFirst, mesh));
  stages.push_back(std::make_unique<Affine>("block0", Affine::Place::kMiddle, mesh));
  stages.push_back(std::make_unique<Affine>("block1", Affine::Place::kMiddle, mesh));
  auto head = std::make_unique<Affine>("head", Affine::Place::kLast, mesh);
  if (tied) head->tie(static_cast<Affine&>(*stages[0]));
  stages.push_back(std::move(head));
  return stages;
}

struct Case {
  const char* name;
  ShardingPolicy policy;
  ExecutorOptions executor;
  bool tied = false;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const char* name, int zero) -> Case& {
    all.push_back({name, {.zero = zero, .moments = 0}, {}});
    return all.back();
  };
  add("zero0", 0);
  add("zero1", 1);
  add("zero2", 2);
  add("zero3", 3);
  add("zero3_tied", 3).tied = true;
  add("zero3_recompute", 3).executor.recompute_every = 1;
  add("zero3_reshard_never", 3).executor.keep_gathered = 4;
  add("zero3_prefetch2", 3).executor.prefetch = 2;
  add("zero3_serial", 3).executor.overlap = false;
  add("zero3_reduce_once", 3).policy.reduce_per_micro_batch = false;
  return all;
}

// Two micro-batches and an evaluation on dp_replicate 2 x dp_shard 2, a trace of each rank.
std::vector<std::string> traces(const Case& c) {
  std::vector<std::string> result(4);
  run_thread_ranks(4, [&](Communicator& world) {
    std::string& text = result[static_cast<size_t>(world.rank())];
    Mesh mesh({2, 2, 1}, world.split(0, world.rank(), "world"));
    const Stages stages = make_stages(mesh, c.tied);
    const BucketSet set = make_buckets(pointers(stages), mesh, c.policy);
    const auto buckets = set.pointers();
    for (FlatBucket* bucket : buckets) initialize_weights(*bucket, 7);
    ExecutorOptions options = c.executor;
    options.trace = [&](const std::string& line) { text += "  " + line + "\n"; };
    StepExecutor executor(pointers(stages), buckets, set.of_stage, options);
    const MicroBatch batch{at::ones({2, 4}, at::kLong), {}, at::ones({2, 4}), {}};
    text += "first micro-batch\n";
    executor.forward_backward(batch, {.first = true, .last = false});
    text += "last micro-batch\n";
    executor.forward_backward(batch, {.first = false, .last = true});
    executor.parameters_changed();
    text += "evaluation after an update\n";
    executor.evaluate(batch);
  });
  return result;
}

TEST(Trace, IsTheGoldenOneOnEveryRank) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto found = traces(c);
    for (size_t rank = 1; rank < found.size(); ++rank) EXPECT_EQ(found[rank], found[0]);
    const std::string path =
        std::string(TESSERA_SOURCE_DIR "/tests/parallel/executor/golden/") + c.name + ".txt";
    if (std::getenv("TESSERA_WRITE_GOLDEN")) std::ofstream(path) << found[0];
    std::ostringstream golden;
    golden << std::ifstream(path).rdbuf();
    EXPECT_EQ(found[0], golden.str())
        << "TESSERA_WRITE_GOLDEN=1 writes " << path << " anew; read what changed";
  }
}

}  // namespace
}  // namespace tessera
