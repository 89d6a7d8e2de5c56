// The program itself on file systems that are slow, full or lack something: faulty_calls.cpp stands
// in for them.
#include "training/program_runs.h"

namespace tessera {
namespace {

constexpr const char* kEndless =
    "train c.yaml --set training.steps=1000000 --set training.log_every=0 "
    "--set checkpoint.every=0";

class FileFaults : public ProgramRuns {
 protected:
  // How many outputs that were not finished lie about.
  int unfinished() const {
    int n = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      n += count(entry.path().filename().string(), ".partial-");
    return n;
  }
};

// A mistake in a rule must not make a case pass.
TEST_F(FileFaults, RulesAreChecked) {
  for (const char* rule : {"fsync *", "nothing * EIO", "fsync * ENOTHING", "fsync * EIO soon=1"})
    EXPECT_CODE(train(rule), 97);
}

// ---- What takes long -------------------------------------------------------------------------

TEST_F(FileFaults, RanksWaitForFileWorkLongerThanForEachOther) {
  write("communication: {timeout: 1}\n");
  // Rank 1's part of the first checkpoint, then rank 0's manifest; at the start rank 0's
  // config.yaml; at the end of the start rank 1's data.
  for (const char* slow :
       {"fsync */rank-00001.safetensors delay=2500 nth=1", "fsync *manifest.json* delay=2500 nth=1",
        "fsync *config.yaml* delay=2500", "open *tokens.idx delay=2500 rank=1",
        "unlink *step-00000001.deleting* delay=2500 nth=1"}) {
    SCOPED_TRACE(slow);
    fs::remove_all(folder_ / "run");
    const Result result = train(slow, 2);
    EXPECT_CODE(result, 0);
    EXPECT_TRUE(has("step-00000003"));
  }
}

TEST_F(FileFaults, FileWorkHasALimitToo) {
  write("communication: {timeout: 1, file_timeout: 1}\n");
  const Result result = train("fsync */rank-00001.safetensors delay=20000 nth=1", 2);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_HAS(result, "timed out after 1000 ms (the limit of file work)");
  EXPECT_HAS(result, "(communication.file_timeout)");
}

TEST_F(FileFaults, StoppingAllRanksForLongerThanTheLimitEndsNothing) {
  for (const char* shared_memory : {"true", "false"}) {
    SCOPED_TRACE(shared_memory);
    fs::remove_all(folder_ / "run");
    write(std::string("communication: {timeout: 2, file_timeout: 2, shared_memory: ") +
          shared_memory + "}\n");
    // Rank 0 waits for rank 1's part of the first checkpoint.
    const pid_t job =
        background("train c.yaml", "fsync */rank-00001.safetensors delay=1500 nth=1", 2);
    const fs::path file = checkpoints_ / "step-00000001.partial" / "rank-00001.safetensors";
    for (int i = 0; i < 3000 && !fs::exists(file); ++i) pause(10);
    pause(300);
    const std::vector<pid_t> ranks = running();
    EXPECT_EQ(ranks.size(), 2u);
    for (const pid_t rank : ranks) kill(rank, SIGSTOP);
    pause(2500);
    for (const pid_t rank : ranks) kill(rank, SIGCONT);
    int status = 0;
    ASSERT_EQ(waitpid(job, &status, 0), job);
    EXPECT_EQ(status, 0) << read_small_file(folder_ / "background.txt", 1 << 20);
    EXPECT_TRUE(has("step-00000003"));
  }
}

// ---- Who reads what at a start ---------------------------------------------------------------

TEST_F(FileFaults, OneRankReadsWhatACheckpointSaysAndEachItsOwnData) {
  write("parallel: {dp_shard: 2}\n");
  ASSERT_EQ(train("", 2, "--set training.steps=2").exit_code, 0);
  // A read that one of these rules forbids would end the run.
  const Result result = train(
      "open */step-00000002/manifest.json EIO from=2; open */pieces.safetensors EIO rank=1; "
      "open */step-00000002/pieces.safetensors EIO from=2; "
      "open */step-00000002/rank-00001.safetensors EIO rank=0; "
      "open */step-00000002/rank-00000.safetensors EIO rank=1; "
      "open */step-00000002/rank-*.safetensors EIO from=2",
      2, "--set checkpoint.keep=0");
  EXPECT_CODE(result, 0);
  EXPECT_HAS(result, "resuming from");
  EXPECT_TRUE(has("step-00000003"));
}

// The first look at a file does not find it, as on a network file system.
TEST_F(FileFaults, AFileThatAppearsLateIsWaitedFor) {
  write("parallel: {dp_shard: 2}\n");
  ASSERT_EQ(train("", 2, "--set training.steps=2").exit_code, 0);
  for (const char* late : {"stat */step-00000002/rank-00001.safetensors ENOENT nth=1 rank=1",
                           "stat */step-00000002/rank-00001.safetensors ENOENT nth=1 rank=0",
                           "stat */step-00000002/pieces.safetensors ENOENT nth=1 rank=0",
                           "stat */step-00000002/manifest.json ENOENT nth=1 rank=1"}) {
    SCOPED_TRACE(late);
    fs::remove_all(folder_ / "run/checkpoints/step-00000003");
    const Result result = train(late, 2, "--set checkpoint.keep=0");
    EXPECT_CODE(result, 0);
    EXPECT_HAS(result, "resuming from");
    EXPECT_EQ(count(result.text, "broken"), 0) << result.text;
    EXPECT_TRUE(has("step-00000003"));
  }
}

// ---- What cannot be removed ------------------------------------------------------------------

TEST_F(FileFaults, AnOldCheckpointThatCannotBeRemovedIsAWarningEachTime) {
  for (const char* stuck :
       {"unlink *step-00000001*/rank-00000.safetensors EPERM",
        "rename *step-00000001.deleting* EPERM", "rmdir *step-00000001.deleting EBUSY",
        "opendir *step-00000001.deleting EACCES"}) {
    SCOPED_TRACE(stuck);
    fs::remove_all(folder_ / "run");
    Result result = train(stuck);
    EXPECT_CODE(result, 0);
    EXPECT_GE(count(result.text, "warning: "), 2) << result.text;  // after steps 2 and 3
    EXPECT_HAS(result, "step-00000001");
    EXPECT_TRUE(has("step-00000003"));
    EXPECT_FALSE(has("step-00000002"));
    result = train(stuck, 1, "--set training.steps=5");  // and no start
    EXPECT_CODE(result, 0);
    EXPECT_HAS(result, "resuming from");
    EXPECT_HAS(result, "warning: ");
    EXPECT_TRUE(has("step-00000005"));
    EXPECT_FALSE(has("step-00000003"));
    result = train("", 1, "--set training.steps=6");  // when it can go, it goes
    EXPECT_CODE(result, 0);
    EXPECT_EQ(count(result.text, "warning: "), 0) << result.text;
    EXPECT_FALSE(has("step-00000001"));
    EXPECT_FALSE(has("step-00000001.deleting"));
  }
}

TEST_F(FileFaults, ALeftOverOfTheSameStepDoesNotStandBeforeASave) {
  fs::create_directories(checkpoints_ / "step-00000002.partial");
  write_file_atomic(checkpoints_ / "step-00000002.partial" / "stuck", "x");
  const Result result = train("unlink */stuck EPERM");
  EXPECT_CODE(result, 0);
  EXPECT_HAS(result, "step-00000002.partial stays: cannot remove");
  EXPECT_HAS(result, "stuck: Operation not permitted");
  EXPECT_TRUE(has("step-00000003"));
  EXPECT_FALSE(has("step-00000002.partial.2"));
}

// What a full disk is full of goes first, before anything is written.
TEST_F(FileFaults, LeftOversGoBeforeTheFirstFileIsWritten) {
  EXPECT_CODE(train("", 1, "--set training.stop_after=1"), 3);
  const fs::path left[] = {checkpoints_ / "step-00000002.partial",
                           checkpoints_ / "step-00000002.partial.2",
                           checkpoints_ / "step-00000001.deleting"};
  for (const fs::path& folder : left) {
    fs::create_directory(folder);
    write_file_atomic(folder / "rank-00000.safetensors", "much");
  }
  const fs::path files[] = {folder_ / "run" / ".metrics.jsonl.tmp", checkpoints_ / ".latest.tmp",
                            checkpoints_ / ".write-test-abc"};
  for (const fs::path& file : files) std::ofstream(file) << "much";
  // The first file of the start that is written under a name of its own.
  const Result result = train("open,fopen */run/*config.yaml* kill; open */.write-test-* kill");
  EXPECT_CODE(result, 128 + SIGKILL);
  for (const fs::path& folder : left) EXPECT_FALSE(fs::exists(folder)) << folder;
  for (const fs::path& file : files) EXPECT_FALSE(fs::exists(file)) << file;
  EXPECT_CODE(train(), 0);
}

// Of all that write an output.
TEST_F(FileFaults, WhatAKilledCommandLeftGoesWithTheNext) {
  EXPECT_CODE(train("", 1, "--set training.stop_after=1"), 3);
  const std::string step = "run/checkpoints/step-00000001";
  for (const std::string& line : {"checkpoint consolidate " + step + " out --with-optimizer",
                                  std::string("checkpoint import out step"),
                                  "checkpoint reshard " + step + " new --mesh 1x2x1",
                                  "checkpoint average " + step + " step --out mean",
                                  std::string("data pack text --out again")}) {
    SCOPED_TRACE(line);
    EXPECT_CODE(start(line, "rename *.partial-* kill"), 128 + SIGKILL);
    EXPECT_GE(unfinished(), 1);
    EXPECT_CODE(start(line), 0);
    EXPECT_EQ(unfinished(), 0);
  }
}

// --force: at any moment there is the old folder, the new one, or the next call brings the old one
// back; never a mixture.
TEST_F(FileFaults, AKilledReplacementLeavesTheOldOrTheNew) {
  EXPECT_CODE(train("", 1, "--set training.stop_after=2 --set checkpoint.keep=0"), 3);
  const std::string old_step = "run/checkpoints/step-00000001";
  const std::string new_step = "run/checkpoints/step-00000002";
  struct Tool {
    std::string before, after, out, sign;  // the first makes OUT, the second replaces it
  };
  const std::vector<Tool> tools = {
      {"checkpoint consolidate " + old_step + " out", "checkpoint consolidate " + new_step + " out",
       "out", "model.safetensors"},
      {"checkpoint reshard " + old_step + " out --mesh 1x2x1",
       "checkpoint reshard " + new_step + " out --mesh 1x2x1", "out", "manifest.json"},
      {"checkpoint average " + old_step + " " + old_step + " --out out",
       "checkpoint average " + new_step + " " + new_step + " --out out", "out", "manifest.json"}};
  for (const Tool& tool : tools) {
    SCOPED_TRACE(tool.after);
    const auto text = [&] { return read_small_file(folder_ / tool.out / tool.sign, 1 << 24); };
    fs::remove_all(folder_ / tool.out);
    EXPECT_CODE(start(tool.after), 0);
    const std::string wanted = text();
    fs::remove_all(folder_ / tool.out);
    EXPECT_CODE(start(tool.before), 0);
    const std::string before = text();
    ASSERT_NE(before, wanted);
    int killed = 0;
    for (const char* call : {"write *out.partial-*", "fsync *out.partial-*", "rename *out*",
                             "unlink *out.partial-*/old/*", "rmdir *out.partial-*"}) {
      for (int nth = 1; nth <= 3; ++nth) {
        SCOPED_TRACE(std::string(call) + " " + std::to_string(nth));
        const Result result =
            start(tool.after + " --force", std::string(call) + " kill nth=" + std::to_string(nth));
        if (result.exit_code == 128 + SIGKILL) ++killed;
        if (fs::exists(folder_ / tool.out)) {
          EXPECT_TRUE(text() == before || text() == wanted);
        }
        // Refused for what is there: what was killed is undone, or was done.
        const Result again = start(tool.before);
        EXPECT_CODE(again, 2);
        EXPECT_HAS(again, "out exists already");
        EXPECT_EQ(unfinished(), 0);
        EXPECT_TRUE(text() == before || text() == wanted);
        EXPECT_CODE(start(tool.before + " --force"), 0);
        EXPECT_EQ(text(), before);
        EXPECT_EQ(unfinished(), 0);
      }
    }
    EXPECT_GE(killed, 10);
  }
}

TEST_F(FileFaults, AFailedSaveLeavesTheOlderOnesAndTheNextStartGoesOn) {
  Result result = train("write *step-00000002.partial* ENOSPC");
  EXPECT_CODE(result, 1);
  EXPECT_HAS(result, "step-00000002.partial/rank-00000.safetensors: No space left on device");
  EXPECT_TRUE(has("step-00000001"));
  result = train();
  EXPECT_CODE(result, 0);
  EXPECT_HAS(result, "step-00000001 at step 1");
  EXPECT_FALSE(has("step-00000002.partial"));
}

// ---- What a file system lacks ----------------------------------------------------------------

TEST_F(FileFaults, WhatAFileSystemLacksIsDoneWithout) {
  for (const std::string error : {"ENOSYS", "EOPNOTSUPP", "EINVAL", "ENOLCK"}) {
    SCOPED_TRACE(error);
    fs::remove_all(folder_ / "run");
    const std::string faults =
        "flock,fcntl_lock,fsync,fdatasync,mmap_shared,chmod,fallocate,"
        "copy_range,sync_file_range,link *" +
        folder_.path().filename().string() + "* " + error;
    Result result = train(faults);
    EXPECT_CODE(result, 0);
    for (const char* part : {"run has no locks", "cannot sync files", "cannot sync folders"})
      EXPECT_EQ(count(result.text, part), 1) << part << "\n" << result.text;
    EXPECT_FALSE(fs::exists(folder_ / "run" / ".owner"));
    EXPECT_CODE(train(faults, 1, "--set training.steps=4"), 0);
    for (const char* tool :
         {"data pack text --out again", "checkpoint consolidate run/checkpoints/step-00000004 out",
          "checkpoint import out step", "checkpoint reshard step new --mesh 2x1x1 --force",
          "checkpoint average step step --out mean --force"}) {
      SCOPED_TRACE(tool);
      result = start(tool, faults);
      EXPECT_CODE(result, 0);
      for (const char* part : {"cannot sync files", "cannot sync folders"})
        EXPECT_EQ(count(result.text, part), 1) << part << "\n" << result.text;
    }
    for (const char* made : {"again.bin", "again.idx", "out", "step"})
      EXPECT_GE(fs::remove_all(folder_ / made), 1u) << made;
  }
}

// Two runs in one folder: the second is refused and says who is there, also without locks.
TEST_F(FileFaults, TwoRunsAreKeptApartWithoutLocks) {
  const std::string no_locks = "flock */run/.lock ENOSYS";
  const pid_t first = background(kEndless, no_locks);
  for (int i = 0; i < 300 && !fs::exists(folder_ / "run" / "metrics.jsonl"); ++i) pause(100);
  const Result second = train(no_locks);
  EXPECT_CODE(second, 2);
  EXPECT_HAS(second, "run is in use by another run (host ");
  EXPECT_HAS(second, "process " + std::to_string(first));
  // Nor does a start that has locks come in.
  EXPECT_CODE(train(), 2);
  ASSERT_EQ(kill(first, SIGKILL), 0);
  ASSERT_EQ(waitpid(first, nullptr, 0), first);
  const Result third = train(no_locks);
  EXPECT_CODE(third, 0);
  EXPECT_HAS(third, "run has no locks");
}

TEST_F(FileFaults, TwoRunsAreKeptApartWithLocks) {
  const pid_t first = background(kEndless, "");
  for (int i = 0; i < 300 && !fs::exists(folder_ / "run" / "metrics.jsonl"); ++i) pause(100);
  const Result second = train();
  EXPECT_CODE(second, 2);
  EXPECT_HAS(second, "process " + std::to_string(first));
  ASSERT_EQ(kill(first, SIGKILL), 0);
  ASSERT_EQ(waitpid(first, nullptr, 0), first);
}

// ---- What goes wrong while it is read --------------------------------------------------------

TEST_F(FileFaults, ADataFileThatShrinksIsAnErrorWithItsName) {
  const Result result = train("read *tokens.bin truncate from=8");
  EXPECT_CODE(result, 1);
  EXPECT_HAS(result, "tokens.bin has become shorter while it was read");
}

TEST_F(FileFaults, WhatCannotBeLookedAtIsNamed) {
  EXPECT_CODE(train(), 0);
  const struct {
    const char* arguments;
    const char* faults;
    int code;
    const char* part;
  } cases[] = {
      {"train c.yaml --set run.dir=other --set checkpoint.resume=run/checkpoints/step-00000003",
       "stat,open *step-00000003/manifest.json EACCES", 1,
       "step-00000003/manifest.json: Permission"},
      {"train c.yaml --set training.steps=5", "stat *checkpoints EACCES", 2,
       "checkpoints: Permission denied"},
      {"train c.yaml --set training.steps=5", "open,fopen *metrics.jsonl EACCES", 1,
       "metrics.jsonl"},
      {"train c.yaml", "open *tokens.idx EIO", 2, "tokens.idx: Input/output error"},
      {"train c.yaml", "open *tokens.bin EACCES", 2, "tokens.bin: Permission denied"},
      {"checkpoint consolidate run/checkpoints/step-00000003 out", "stat *out EACCES", 2,
       "out: Permission denied"},
      {"data pack text --out x/y", "mkdir *x EACCES", 2, "x: Permission denied"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.arguments) + " | " + c.faults);
    const Result result = start(c.arguments, c.faults);
    EXPECT_CODE(result, c.code);
    EXPECT_HAS(result, c.part);
    EXPECT_EQ(result.text.find("filesystem error"), std::string::npos) << result.text;
  }
}

}  // namespace
}  // namespace tessera
