// debug.compare_replicas_every in real runs: on every axis at once nothing differs, and the numbers
// are those of a run without.
#include "base/error.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

TEST(Replicas, AreBitwiseAlikeAtEveryStageOfZero) {
  const TemporaryFolder folder;
  for (int zero = 0; zero <= 3; ++zero) {
    Config config = tiny_config(folder, "plain" + std::to_string(zero));
    config.training.steps = 4;
    config.parallel.zero = zero;
    config.parallel.dp_replicate = 2;
    config.parallel.dp_shard = 2;
    config.parallel.tp = 2;
    config.precision.params = zero % 2 == 0 ? ParamsDtype::kBf16 : ParamsDtype::kFp32;
    const TinyRun plain = run(config);
    config.run.dir = folder / ("compared" + std::to_string(zero));
    config.debug.compare_replicas_every = 1;
    expect_identical(run(config), plain);
  }
}

TEST(Replicas, ADifferenceNamesTheStepAndTheKey) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.parallel.dp_replicate = 2;
  config.debug.compare_replicas_every = 2;
  TrainHooks hooks;
  hooks.gradients_ready = [](int64_t, Mesh& mesh, const std::vector<FlatBucket*>& buckets) {
    if (mesh.world().rank() == 1) buckets[0]->grad().add_(1.0);
  };
  try {
    run(config, hooks);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("step 2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("(debug.compare_replicas_every)"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera
