#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "base/files/files.h"
#include "support/folders.h"
#include "support/temporary_folder.h"

namespace tessera {

namespace fs = std::filesystem;

// Starts of the program itself in a folder of its own, with a tiny run in it, behind system calls
// that fail (faulty_calls.cpp). Each case is a start of the binary, mostly of two or three steps.
class ProgramRuns : public testing::Test {
 protected:
  struct Result {
    int exit_code = -1;
    std::string text;  // of both streams
  };

  ProgramRuns() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * 7 % 1000) + "\n";
    write_file_atomic(folder_ / "text", text);
    EXPECT_EQ(start("data pack text --out tokens").exit_code, 0);
    write("");
  }

  // The configuration, with sections of the case's own.
  void write(const std::string& more) {
    write_file_atomic(folder_ / "c.yaml", R"(
run: {dir: run, seed: 3}
model: {type: llama, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
        num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 256}
data: {train: [tokens], seq_len: 16}
training: {steps: 3, global_batch_size: 4, micro_batch_size: 2}
schedule: {warmup_steps: 0}
checkpoint: {every: 1, keep: 1, resume: auto}
)" + more);
  }

  // `shell`: how the shell starts it, such as "ulimit -f 100 && exec".
  std::string command(const std::string& arguments, const std::string& faults, int ranks,
                      const std::string& shell = "exec") {
    std::string line = "cd '" + folder_.path().string() + "' && " + shell +
                       " env -u SLURM_PROCID -u SLURM_NTASKS OMP_NUM_THREADS=1 ";
    if (ranks > 1)
      line += "timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none -n " +
              std::to_string(ranks) + " env ";
    if (!faults.empty())
      line +=
          "LD_PRELOAD='" TESSERA_BINARY_DIR "/libfaulty_calls.so' FAULTY_CALLS='" + faults + "' ";
    return line + "'" TESSERA_BINARY_DIR "/tessera' " + arguments;
  }

  Result start(const std::string& arguments, const std::string& faults = "", int ranks = 1,
               const std::string& shell = "exec") {
    const int status = std::system(
        (command(arguments, faults, ranks, shell) + " >out.txt 2>&1 </dev/null").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            read_small_file(folder_ / "out.txt", 1 << 20)};
  }
  Result train(const std::string& faults = "", int ranks = 1, const std::string& more = "") {
    return start("train c.yaml " + more, faults, ranks);
  }

  // The same beside this process; with one rank, the number is the program's.
  pid_t background(const std::string& arguments, const std::string& faults, int ranks = 1,
                   const std::string& shell = "exec") {
    const std::string line =
        command(arguments, faults, ranks, shell) + " >background.txt 2>&1 </dev/null";
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }

  // The program's processes that work in this test's folder.
  std::vector<pid_t> running() const {
    std::vector<pid_t> found;
    for (const auto& process : fs::directory_iterator("/proc")) {
      std::error_code gone;
      if (fs::read_symlink(process.path() / "cwd", gone) == fs::canonical(folder_.path()) &&
          fs::read_symlink(process.path() / "exe", gone).filename() == "tessera")
        found.push_back(std::stoi(process.path().filename().string()));
    }
    return found;
  }

  static void pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

  bool has(const std::string& name) const { return fs::exists(checkpoints_ / name); }

  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  TemporaryFolder folder_;
  fs::path checkpoints_ = folder_ / "run" / "checkpoints";
};

#define EXPECT_HAS(result, part) \
  EXPECT_NE((result).text.find(part), std::string::npos) << (result).text
#define EXPECT_CODE(result, code)                         \
  do {                                                    \
    const auto& of_start = (result);                      \
    EXPECT_EQ(of_start.exit_code, code) << of_start.text; \
  } while (false)

}  // namespace tessera
