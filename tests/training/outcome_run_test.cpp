// How starts of the program itself end: exit code, what is said and how often, outcome.json; and
// what becomes of a process that another one has replaced, wherever it was stopped.
#include <nlohmann/json.hpp>

#include <map>

#include "base/process/host_name.h"
#include "training/program_runs.h"

namespace tessera {
namespace {

class OutcomeRuns : public ProgramRuns {
 protected:
  nlohmann::json outcome(const std::string& run = "run") const {
    const fs::path file = folder_ / run / "logs" / "outcome.json";
    return fs::exists(file) ? nlohmann::json::parse(read_small_file(file, 1 << 16)) : nullptr;
  }

  void expect_outcome(const Result& result, int code, const std::string& kind, int start) {
    EXPECT_CODE(result, code);
    const nlohmann::json json = outcome();
    ASSERT_TRUE(json.is_object()) << result.text;
    EXPECT_EQ(json["outcome"], kind) << json;
    EXPECT_EQ(json["exit_code"], code) << json;
    EXPECT_EQ(json["start"], start) << json;
  }

  // All files below a folder, with what they hold.
  static std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      std::ifstream in(entry.path(), std::ios::binary);
      files[fs::relative(entry.path(), folder).string()] =
          entry.is_regular_file() ? std::string(std::istreambuf_iterator<char>(in), {}) : "folder";
    }
    return files;
  }
};

TEST_F(OutcomeRuns, EachStartSaysHowItEnded) {
  write("parallel: {dp_shard: 2}\n");
  expect_outcome(train("", 2, "--set training.stop_after=1"), 3, "stopped", 1);
  EXPECT_EQ(outcome()["reason"], "stop_after");
  EXPECT_EQ(outcome()["newest_checkpoint"], 1);

  // A save that fails on rank 1: the rank, its host and the step that was done are named.
  Result result = train("write *step-00000002.partial/rank-00001.safetensors EIO", 2);
  expect_outcome(result, 1, "failed", 2);
  EXPECT_EQ(outcome()["newest_checkpoint"], 1);
  EXPECT_EQ(count(result.text, "\nerror: "), 1) << result.text;
  EXPECT_GE(outcome()["step"], 2) << "the save ran beside the next step";
  EXPECT_NE(outcome()["cause"].get<std::string>().find("rank-00001.safetensors"),
            std::string::npos);

  // A mistake that is found in the run folder.
  result = train("", 2, "--set optimizer.lr=0.5");
  expect_outcome(result, 2, "user_error", 3);
  EXPECT_EQ(count(result.text, "error: "), 1) << result.text;

  result = train("", 2);
  expect_outcome(result, 0, "done", 4);
  EXPECT_EQ(outcome()["step"], 3);
  expect_outcome(train("", 2), 0, "done", 5);
}

TEST_F(OutcomeRuns, AStopOnRequestIsRecorded) {
  const pid_t job = background(
      "train c.yaml --set training.steps=1000000 --set training.log_every=0 --set "
      "checkpoint.keep=2",
      "");
  for (int i = 0; i < 3000 && !has("step-00000002"); ++i) pause(10);
  kill(job, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(job, &status, 0), job);
  EXPECT_EQ(WEXITSTATUS(status), 3) << read_small_file(folder_ / "background.txt", 1 << 20);
  EXPECT_EQ(outcome()["outcome"], "stopped");
  EXPECT_EQ(outcome()["reason"], "request");
  EXPECT_EQ(outcome()["step"], outcome()["newest_checkpoint"]);
}

// What is wrong before the run folder is the start's own leaves no word in it.
TEST_F(OutcomeRuns, AStartThatNeverOwnsTheFolderLeavesNoOutcome) {
  EXPECT_CODE(train("", 1, "--set training.step=1"), 2);
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(OutcomeRuns, ACrashNamesTheRankAndHasAStack) {
  write("parallel: {dp_shard: 2}\n");
  const pid_t job =
      background("train c.yaml --set training.steps=1000000 --set training.log_every=0", "", 2);
  for (int i = 0; i < 3000 && !has("step-00000002"); ++i) pause(10);
  for (const pid_t rank : running()) {
    std::ifstream in("/proc/" + std::to_string(rank) + "/environ", std::ios::binary);
    const std::string environment(std::istreambuf_iterator<char>(in), {});
    if (environment.find(std::string("\0OMPI_COMM_WORLD_RANK=1\0", 24)) != std::string::npos)
      kill(rank, SIGSEGV);
  }
  int status = 0;
  ASSERT_EQ(waitpid(job, &status, 0), job);
  const std::string text = read_small_file(folder_ / "background.txt", 1 << 20);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGSEGV) << text;
  EXPECT_NE(text.find("error: rank 1 (" + host_name()), std::string::npos) << text;
  EXPECT_NE(text.find("was ended by SIGSEGV after step "), std::string::npos) << text;
  EXPECT_NE(text.find("libc.so"), std::string::npos) << "a stack: " << text;
}

// ---- A process that was replaced -------------------------------------------------------------

// A turn of the Slurm job 77 in a run folder of its own.
struct Turn {
  const char* name;
  const char* faults;  // where the old process stops
  pid_t old = 0;
  pid_t newer = 0;
};

// Slurm cannot reach a node and starts the job again elsewhere; the node comes back. Stopping the
// old process stands for the cut; its lock is held all the time. It stops at the worst places: when
// it has just looked whether the folder is its own.
TEST_F(OutcomeRuns, WhoIsReplacedWritesNothingMore) {
  write_file_atomic(folder_ / "c.yaml", R"(
run: {seed: 3}
model: {type: llama, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
        num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 256}
data: {train: [tokens], seq_len: 16}
training: {steps: 1000000, global_batch_size: 4, micro_batch_size: 2, log_every: 1}
schedule: {warmup_steps: 0, steps: 10}
checkpoint: {every: 1, keep: 2, resume: auto}
)");
  Turn turns[] = {
      {"commit", "rename *step-00000003.partial* stop nth=1"},
      {"manifest", "open,fopen *step-00000003.partial*manifest.json* stop nth=1"},
      {"begin", "mkdir *step-00000003.partial stop nth=1"},
      {"line", "write *metrics.jsonl stop nth=5"},
      {"log", "write *rank-00000.safetensors stop nth=7"},
  };
  const auto start_turn = [&](const Turn& turn, const char* restart, const std::string& faults,
                              const std::string& more) {
    const std::string line =
        command("train c.yaml --set run.dir=" + std::string(turn.name) + " " + more, faults, 1,
                std::string("exec env SLURM_JOB_ID=77 SLURM_RESTART_COUNT=") + restart) +
        " >" + turn.name + restart + ".txt 2>&1 </dev/null";
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    return child;
  };
  const auto said = [&](const Turn& turn, const char* restart) {
    return read_small_file(folder_ / (std::string(turn.name) + restart + ".txt"), 1 << 20);
  };
  int status = 0;
  for (Turn& turn : turns) {
    turn.old = start_turn(turn, "0", turn.faults, "");
    ASSERT_EQ(waitpid(turn.old, &status, WUNTRACED), turn.old);
    ASSERT_TRUE(WIFSTOPPED(status)) << turn.name << said(turn, "0");
  }
  // All at once: each waits for half a minute.
  for (Turn& turn : turns) turn.newer = start_turn(turn, "1", "", "--set training.stop_after=6");
  for (Turn& turn : turns) {
    SCOPED_TRACE(turn.name);
    ASSERT_EQ(waitpid(turn.newer, &status, 0), turn.newer);
    EXPECT_EQ(WEXITSTATUS(status), 3) << said(turn, "1");
    EXPECT_NE(said(turn, "1").find("held by an earlier turn of this job (host "), std::string::npos)
        << said(turn, "1");
    EXPECT_NE(said(turn, "1").find("this start takes over"), std::string::npos);
    EXPECT_EQ(outcome(turn.name)["start"], 2);
    EXPECT_EQ(outcome(turn.name)["job"], "77");
    EXPECT_EQ(outcome(turn.name)["restart"], 1);
    const auto before = contents(folder_ / turn.name);
    EXPECT_TRUE(before.contains("checkpoints/step-00000006/manifest.json"));
    kill(turn.old, SIGCONT);
    ASSERT_EQ(waitpid(turn.old, &status, 0), turn.old);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 4) << said(turn, "0");
    EXPECT_NE(said(turn, "0").find("error: "), std::string::npos);
    const auto after = contents(folder_ / turn.name);
    for (const auto& [name, text] : after)
      EXPECT_TRUE(before.contains(name) && before.at(name) == text) << name << " has changed";
    EXPECT_EQ(before.size(), after.size());
  }
}

// Another job is refused as ever, and so is the same turn of the same job.
TEST_F(OutcomeRuns, OnlyALaterTurnOfTheSameJobTakesOver) {
  const pid_t job =
      background("train c.yaml --set training.steps=1000000 --set training.log_every=0", "", 1,
                 "exec env SLURM_JOB_ID=77 SLURM_RESTART_COUNT=1");
  for (int i = 0; i < 3000 && !has("step-00000002"); ++i) pause(10);
  for (const char* who :
       {"SLURM_JOB_ID=78 SLURM_RESTART_COUNT=2", "SLURM_JOB_ID=77 SLURM_RESTART_COUNT=1",
        "SLURM_JOB_ID=77 SLURM_RESTART_COUNT=0", "NOTHING=1"}) {
    const Result result = start("train c.yaml", "", 1, std::string("exec env ") + who);
    EXPECT_CODE(result, 2);
    EXPECT_HAS(result, "run is in use by another run (host ");
    EXPECT_HAS(result, ", job 77, restart 1); wait for it");
  }
  EXPECT_TRUE(outcome().is_null()) << "the refused starts own nothing";
  kill(job, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(job, &status, 0), job);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
}  // namespace tessera
