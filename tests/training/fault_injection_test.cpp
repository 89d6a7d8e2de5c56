// debug.inject: each moment and each deed, on thread ranks where the process lives on, else in a
// child; and what a job of real processes says.
#include "training/loop/fault_injection.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "base/process/host_name.h"
#include "config/save.h"
#include "support/folders.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

class FaultInjectionRun : public testing::Test {
 protected:
  FaultInjectionRun() {
    config_.training.steps = 3;
    config_.checkpoint.every = 2;
    config_.eval.every = 2;
    config_.data.valid = config_.data.train;
    config_.schedule.warmup_steps = 0;
  }

  void inject(FaultMoment at, int64_t step, FaultDeed deed, int rank) {
    config_.debug.inject = InjectedFault{.rank = rank, .step = step, .at = at, .deed = deed};
  }

  // The Error of a run on `ranks` thread ranks; empty if there is none.
  std::string error_on(int ranks) {
    config_.parallel.dp_shard = ranks;
    try {
      run(config_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
  }

  TemporaryFolder folder_;
  Config config_ = tiny_config(folder_, "run");
};

TEST_F(FaultInjectionRun, ThrowsAtEveryMoment) {
  const struct {
    FaultMoment at;
    int64_t step;
    const char* text;
    int64_t saved;  // the step whose checkpoint must be there; 0: none is
  } cases[] = {
      {FaultMoment::kStart, 0, "an error at the start, as debug.inject asks for", 0},
      {FaultMoment::kData, 3, "an error before it reads its data of step 3", 2},
      {FaultMoment::kCompute, 1, "an error in its computation of step 1", 0},
      {FaultMoment::kCollective, 3, "an error at its first collective of step 3", 2},
      {FaultMoment::kSave, 2, "an error in its save of step 2", 0},
      {FaultMoment::kValidation, 2, "an error in its validation of step 2", 2},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    config_.run.dir = folder_ / std::to_string(static_cast<int>(c.at));
    config_.checkpoint.async = false;
    inject(c.at, c.step, FaultDeed::kThrow, 1);
    expect_in(error_on(2), c.text);
    const std::filesystem::path checkpoints =
        std::filesystem::path(config_.run.dir) / "checkpoints";
    EXPECT_EQ(std::filesystem::exists(checkpoints / step_dir_name(2)), c.saved == 2);
  }
}

TEST_F(FaultInjectionRun, TellsThatTheRunIsMeantToFail) {
  inject(FaultMoment::kData, 1, FaultDeed::kThrow, 1);
  error_on(2);
  std::ostringstream log;
  log << std::ifstream(std::filesystem::path(config_.run.dir) / "logs" / "train.log").rdbuf();
  expect_in(log.str(),
            "warning: debug.inject: rank 1 throws an error, before it reads its data of step 1; "
            "this run is meant to fail");
}

TEST_F(FaultInjectionRun, ACollectiveThatIsLeftOutOrResizedIsNamed) {
  for (const FaultDeed deed : {FaultDeed::kSkip, FaultDeed::kResize}) {
    config_.run.dir = folder_ / (deed == FaultDeed::kSkip ? "skip" : "resize");
    inject(FaultMoment::kCollective, 2, deed, 2);
    const std::string error = error_on(4);
    expect_in(error, "[comm] gather: ranks disagree: rank 2 called all_gather(");
    expect_in(error, "; the others called all_gather(");
  }
}

// A run without a fault, and the ranks that make none, use their world as it is.
TEST(FaultInjection, WrapsNothingWithoutNeed) {
  const std::optional<InjectedFault> collective =
      InjectedFault{.rank = 0, .step = 1, .at = FaultMoment::kCollective, .deed = FaultDeed::kSkip};
  run_thread_ranks(2, [&](Communicator& world) {
    for (const auto& asked : {std::optional<InjectedFault>(), collective}) {
      FaultInjection faults(asked, world);
      EXPECT_EQ(faults.warning().empty(), !asked);
      auto group = world.split(0, world.rank(), "group");
      const Communicator* before = group.get();
      group = faults.wrap(std::move(group));
      EXPECT_EQ(group.get() == before, !asked || world.rank() != 0);
    }
  });
}

TEST(FaultInjection, EndsOrStopsTheProcess) {
  const auto at_data = [](FaultDeed deed) {
    const auto world = make_self_communicator();
    FaultInjection faults(InjectedFault{.step = 2, .at = FaultMoment::kData, .deed = deed}, *world);
    faults.reach(FaultMoment::kData, 1);
    faults.reach(FaultMoment::kSave, 2);
    faults.reach(FaultMoment::kData, 2);
    _exit(7);  // where it goes on
  };
  const auto status_of = [&](FaultDeed deed) {
    const pid_t child = fork();
    if (child == 0) at_data(deed);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
    if (!WIFSTOPPED(status)) return status;
    kill(child, SIGCONT);
    int end = 0;
    EXPECT_EQ(waitpid(child, &end, 0), child);
    EXPECT_EQ(WEXITSTATUS(end), 7);  // once only
    return status;
  };
  const int exited = status_of(FaultDeed::kExit), killed = status_of(FaultDeed::kKill);
  EXPECT_TRUE(WIFEXITED(exited) && WEXITSTATUS(exited) == 1) << exited;
  EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL) << killed;
  EXPECT_TRUE(WIFSTOPPED(status_of(FaultDeed::kStop)));
}

// Real processes: the one line that says what is wrong, with the rank, and no box of the launcher's
// around it.
class FaultInjectionJob : public FaultInjectionRun {
 protected:
  struct Result {
    int exit_code;
    std::string text;
  };
  Result job(int ranks) {
    config_.parallel.dp_shard = 0;
    const std::string file = folder_ / "c.yaml", log = folder_ / "log";
    std::ofstream(file) << to_yaml(config_);
    const std::string command = "OMP_NUM_THREADS=1 timeout 120 " TESSERA_MPIRUN
                                " --allow-run-as-root --oversubscribe --bind-to none -n " +
                                std::to_string(ranks) +
                                " '" TESSERA_BINARY_DIR "/tessera' train '" + file + "' >'" + log +
                                "' 2>&1 </dev/null";
    const int status = std::system(command.c_str());
    std::ostringstream output;
    output << std::ifstream(log).rdbuf();
    return {WEXITSTATUS(status), output.str()};
  }
};

TEST_F(FaultInjectionJob, AnErrorIsNotBuriedByMpi) {
  inject(FaultMoment::kCompute, 2, FaultDeed::kThrow, 1);
  const Result result = job(2);
  EXPECT_EQ(result.exit_code, 1) << result.text;
  expect_in(result.text, "[inject] an error in its computation of step 2");
  expect_in(result.text, "debug.inject: rank 1 (" + host_name() + ") throws an error");
  EXPECT_EQ(result.text.find("MPI_ABORT was invoked"), std::string::npos) << result.text;
}

TEST_F(FaultInjectionJob, ALeftOutCollectiveNamesRankAndHost) {
  inject(FaultMoment::kCollective, 2, FaultDeed::kSkip, 2);
  const Result result = job(4);
  EXPECT_EQ(result.exit_code, 1) << result.text;
  expect_in(result.text, "ranks disagree: rank 2 (" + host_name() + ") called all_gather(");
}

TEST_F(FaultInjectionJob, ARankThatIsNotThereIsAUsersMistake) {
  inject(FaultMoment::kData, 2, FaultDeed::kKill, 5);
  const Result result = job(2);
  EXPECT_EQ(result.exit_code, 2) << result.text;
  expect_in(result.text, "debug.inject.rank: 5; with 2 ranks it must be from 0 to 1");
}

}  // namespace
}  // namespace tessera
