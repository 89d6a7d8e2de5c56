#include "training/engine/out_of_memory.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

MemoryCase one_stage() {
  MemoryCase run;
  run.chain = {{{int64_t{1} << 20, at::kFloat, true, 1}}, {{{0}, true}}};
  run.mesh = {1, 4, 1};
  run.policy.zero = 0;
  run.micro_batch_size = 4;
  return run;
}

void expect_in_order(const std::string& text, const std::vector<std::string>& parts) {
  size_t at = 0;
  for (const std::string& part : parts) {
    at = text.find(part, at);
    ASSERT_NE(at, std::string::npos) << part << "\nin: " << text;
  }
}

TEST(OutOfMemory, BeforeTheFirstStepItSaysWhatTheEngineWouldHold) {
  // 16 MiB at zero 0, 10 MiB at zero 1.
  expect_in_order(
      out_of_memory_text(one_stage(), std::nullopt, 12 << 20, "Tried to allocate 4 MiB"),
      {"the GPU is full: Tried to allocate 4 MiB. Of 12 MiB that this rank can have",
       "the engine would hold master weights", "in memory 16 MiB", "is not known yet",
       "the cheapest first: parallel.zero: 1 (10 MiB); ",
       "Of unknown effect, on activations alone: memory.recompute: selective"});
}

TEST(OutOfMemory, InAStepWhatItNeededSoFarCounts) {
  MemoryLedger ledger;
  ledger.add(MemoryClass::kMaster, 16 << 20);
  const std::string text = out_of_memory_text(one_stage(), ledger, 20 << 20, "full");
  expect_in_order(text, {"the engine holds master weights 16 MiB", "in memory 16 MiB",
                         "a step needs more than the 4096 KiB that are left", "parallel.zero: 1",
                         "training.micro_batch_size: 2 (18 MiB)"});
}

TEST(OutOfMemory, WhereNothingHelpsItSaysSo) {
  MemoryCase run = one_stage();
  run.mesh = {1, 1, 1};
  run.micro_batch_size = 1;
  expect_in_order(out_of_memory_text(run, std::nullopt, 1 << 20, "full"),
                  {"no one or two settings of which the effect is known would make it fit",
                   "closest comes memory.offload", "use more ranks"});
}

TEST(OutOfMemory, OfAnUnknownRunTheErrorStaysWhatItIs) {
  EXPECT_THROW(OutOfMemory().explain(c10::OutOfMemoryError({}, "full")), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace tessera
