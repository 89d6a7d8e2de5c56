#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "config/config_text.h"
#include "support/folders.h"

// The binary from outside: exit codes, and what reaches stdout and stderr.
namespace tessera::testing {

struct Result {
  int exit_code = -1;
  std::string out;
  std::string err;
};

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Runs `TESSERA arguments` in `dir` through the shell, with no launcher's variables; `before` goes
// in front of it (variables, mpirun).
inline Result run(const TemporaryFolder& dir, const std::string& arguments,
                  const std::string& before = "") {
  const std::string command =
      "cd '" + dir.path().string() + "' && env -u SLURM_PROCID -u SLURM_NTASKS OMP_NUM_THREADS=1 " +
      before + " '" TESSERA_BINARY_DIR "/tessera' " + arguments + " >out.txt 2>err.txt </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(dir.path() / "out.txt"),
          read_file(dir.path() / "err.txt")};
}

inline int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

#define EXPECT_HAS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "no \"" << (part) << "\" in: " << (text)

}  // namespace tessera::testing
