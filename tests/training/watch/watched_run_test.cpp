// The program itself under mpirun, with a rank that is killed, stopped, or never starts: who is
// named, and that all are gone soon.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "training/program_runs.h"

namespace tessera {
namespace {

constexpr int kRanks = 3;

class WatchedRun : public ProgramRuns {
 protected:
  WatchedRun() {
    // Long enough to be interrupted anywhere; each rank leaves its number and process.
    write(R"(
watchdog: {start: 5, first_step: 4, step: 4}
communication: {timeout: 100}
)");
    script("#!/bin/sh\necho $$ >rank-$OMPI_COMM_WORLD_RANK\nexec \"$@\"\n");
  }

  // What mpirun starts in place of the program.
  void script(const std::string& text) {
    write_file_atomic(folder_ / "rank.sh", text);
    ::chmod((folder_ / "rank.sh").c_str(), 0755);
  }

  pid_t start_run(const std::string& more = "") {
    const std::string line =
        "cd '" + folder_.path().string() +
        "' && exec env -u SLURM_PROCID -u SLURM_NTASKS OMP_NUM_THREADS=1 timeout 100 mpirun "
        "--allow-run-as-root --oversubscribe --bind-to none -n " +
        std::to_string(kRanks) +
        " ./rank.sh '" TESSERA_BINARY_DIR
        "/tessera' train c.yaml --set training.steps=1000000 --set checkpoint.every=0 --set "
        "training.log_every=20 " +
        more + " >out.txt 2>&1 </dev/null";
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }

  std::string text() const {
    return fs::exists(folder_ / "out.txt") ? read_small_file(folder_ / "out.txt", 1 << 22) : "";
  }

  // Waits until rank 0 has told of so many steps.
  bool trains() const {
    for (int i = 0; i < 600; ++i) {
      if (text().find("\n       20 ") != std::string::npos) return true;
      pause(50);
    }
    return false;
  }

  pid_t process_of(int rank) const {
    return std::stoi(read_small_file(folder_ / ("rank-" + std::to_string(rank)), 100));
  }

  // Waits for mpirun; its exit code, -1 if it does not end. No rank is left afterwards.
  int wait_for(pid_t child) {
    for (int i = 0; i < 600; ++i) {
      int status = 0;
      if (waitpid(child, &status, WNOHANG) == child) {
        for (int k = 0; k < 100 && !running().empty(); ++k) pause(50);
        EXPECT_TRUE(running().empty());
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      pause(50);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return -1;
  }

  // The one error in the output, which names `rank`.
  void expect_one_error(int rank, const std::string& part) const {
    const std::string out = text();
    EXPECT_EQ(count(out, "error: "), 1) << out;
    EXPECT_NE(out.find("error: rank " + std::to_string(rank) + " ("), std::string::npos) << out;
    EXPECT_NE(out.find(part), std::string::npos) << part << "\n" << out;
    const std::string log = read_small_file(folder_ / "run" / "logs" / "train.log", 1 << 22);
    EXPECT_NE(log.find(part), std::string::npos) << log;
    const std::string outcome = read_small_file(folder_ / "run" / "logs" / "outcome.json", 1 << 16);
    EXPECT_NE(outcome.find("\"rank\":" + std::to_string(rank) + ","), std::string::npos) << outcome;
  }

  bool has_dump() const {
    for (const auto& file : list_folder(folder_ / "run" / "logs"))
      if (file.filename().string().starts_with("hang-")) return true;
    return false;
  }
};

TEST_F(WatchedRun, AKilledRankIsNamed) {
  for (const int rank : {2, 0}) {
    fs::remove_all(folder_ / "run");
    fs::remove(folder_ / "out.txt");
    const pid_t run = start_run();
    ASSERT_TRUE(trains()) << text();
    kill(process_of(rank), SIGKILL);
    EXPECT_NE(wait_for(run), 0);
    expect_one_error(rank, "is gone: its process ended without a word");
  }
}

TEST_F(WatchedRun, AStoppedRankIsNamed) {
  for (const int rank : {1, 0}) {
    fs::remove_all(folder_ / "run");
    fs::remove(folder_ / "out.txt");
    const pid_t run = start_run();
    ASSERT_TRUE(trains()) << text();
    kill(process_of(rank), SIGSTOP);
    EXPECT_NE(wait_for(run), 0);
    expect_one_error(rank, "is stopped: nothing was heard of it for ");
    EXPECT_TRUE(has_dump());
  }
}

TEST_F(WatchedRun, ARankThatDoesNotStartIsNamed) {
  script("#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 1 ] && exec sleep 90\nexec \"$@\"\n");
  const pid_t run = start_run();
  EXPECT_EQ(wait_for(run), 1);
  const std::string out = text();
  EXPECT_EQ(count(out, "error: "), 1) << out;
  EXPECT_NE(out.find("error: rank 1 has not started: nothing was ever heard of it\nafter 5 s "
                     "(watchdog.start) the other 2 wait for it in the start of MPI"),
            std::string::npos)
      << out;
}

TEST_F(WatchedRun, ARankThatIsStoppedAtTheStartIsNamed) {
  script(
      "#!/bin/sh\necho $$ >rank-$OMPI_COMM_WORLD_RANK\n"
      "[ $OMPI_COMM_WORLD_RANK = 2 ] && kill -STOP $$\nexec \"$@\"\n");
  const pid_t run = start_run();
  EXPECT_EQ(wait_for(run), 1);
  EXPECT_NE(text().find("error: rank 2 has not started"), std::string::npos) << text();
}

TEST_F(WatchedRun, AnErrorOfAllRanksIsToldOnce) {
  const pid_t run = start_run("--set 'data.train=[nothing-there]'");
  EXPECT_EQ(wait_for(run), 2);
  EXPECT_EQ(count(text(), "error: "), 1) << text();
}

TEST_F(WatchedRun, ARequestToStopIsNoVerdict) {
  const pid_t run = start_run();
  ASSERT_TRUE(trains()) << text();
  kill(process_of(1), SIGUSR1);
  EXPECT_EQ(wait_for(run), 3) << text();
  EXPECT_EQ(count(text(), "error: "), 0) << text();
  EXPECT_EQ(count(text(), "warning: "), 0) << text();
  for (const auto& file : list_folder(folder_ / "run" / "logs"))
    EXPECT_FALSE(file.filename().string().starts_with(".watch-")) << file;
}

}  // namespace
}  // namespace tessera
