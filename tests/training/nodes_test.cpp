// A run whose tp groups straddle nodes: the error names the keys, and one of them allows it.
#include "base/error.h"
#include "parallel/far_communicator.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

void train_far(const Config& config) {
  const StopSignal stop_signal;
  run_thread_ranks(2, [&](Communicator& world) {
    train(config, std::make_unique<FarCommunicator>(world.split(0, world.rank(), "world")),
          stop_signal);
  });
}

TEST(Nodes, ATpGroupAcrossThemIsRefusedUnlessAllowed) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.training.steps = 1;
  config.parallel.tp = 2;
  try {
    train_far(config);
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string text = error.what();
    for (const char* part :
         {"straddles nodes (tp 2)", "parallel.tp", "parallel.allow_tp_across_nodes: true"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  config.parallel.allow_tp_across_nodes = true;
  train_far(config);
}

}  // namespace
}  // namespace tessera
