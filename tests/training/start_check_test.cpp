// The doctor at the start of a run: it warns of what is wrong, and says nothing where all is well.
#include <sched.h>

#include "training/program_runs.h"

namespace tessera {
namespace {

class StartCheck : public ProgramRuns {
 protected:
  static int cores() {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
  }
  // All ranks on the first core.
  Result train_on_one_core(const std::string& more = "") {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    sched_getaffinity(0, sizeof mask, &mask);
    int core = 0;
    while (core < CPU_SETSIZE && !CPU_ISSET(core, &mask)) ++core;
    return start("train c.yaml " + more, "", 2, "exec taskset -c " + std::to_string(core));
  }
};

TEST_F(StartCheck, NothingWhereAllIsWell) {
  const Result result = train("", 2);
  EXPECT_CODE(result, 0);
  EXPECT_EQ(count(result.text, "warning"), 0) << result.text;
}

TEST_F(StartCheck, RanksOnOneCoreAreAWarning) {
  if (cores() < 2) GTEST_SKIP() << "there is one core";
  const Result result = train_on_one_core();
  EXPECT_CODE(result, 0);
  EXPECT_HAS(result, "warning: cores: ranks 0-1 (");
  EXPECT_HAS(result, "are bound to the same hardware thread");
  EXPECT_EQ(count(result.text, "warning"), 1) << result.text;
}

TEST_F(StartCheck, CanBeLeftOut) {
  const Result result = train_on_one_core("--set run.doctor=off");
  EXPECT_CODE(result, 0);
  EXPECT_EQ(count(result.text, "warning"), 0) << result.text;
}

}  // namespace
}  // namespace tessera
