#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tessera {

// How one start of a run ended, for a program that decides whether to start it again: the object in
// RUN/logs/outcome.json (docs/outcome.md).
struct Outcome {
  enum class Kind { kDone, kStopped, kFailed, kUserError, kReplaced };

  Kind kind = Kind::kFailed;
  // "request", "stop_after", "error", "lost_rank", "hang", "replaced", or empty.
  std::string reason;
  std::string cause;              // for a person; record_outcome() makes it one line
  std::optional<int> rank;        // of the world, whose failure it is
  std::string host;               // of that rank; empty: none
  int64_t step = 0;               // the last that is done
  int64_t newest_checkpoint = 0;  // 0: none
  int64_t start = 0;              // this start's number (training/start/count_start.h)
};

// The exit code that goes with it (base/exit_codes.h).
int exit_code_of(Outcome::Kind kind);

// The first failure of a start: several ranks fail, and the words of one are told.
struct FirstFailure {
  bool ours = true;    // this rank was first, or it cannot be told who was
  bool known = false;  // below is what the other rank has written; not where ours
  std::string cause;
  std::optional<int> rank;
  std::string host;
  int exit_code = 0;
};

// Claims to be the first failure of outcome.start: by a file that only one process can make,
// RUN/logs/start-NNNN/first-failure. Any rank; the file system must be shared. Throws nothing.
FirstFailure claim_failure(const std::filesystem::path& run_dir, const Outcome& outcome) noexcept;

// Writes RUN/logs/outcome.json, atomically. Only for a start that has owned the run folder's lock.
// What stands there stays if it is of a later start, or if outcome.start has failed before with
// another cause. kReplaced is not written: the folder is the other start's, and so is the file.
// True if the file says `outcome` now. Throws nothing.
bool record_outcome(const std::filesystem::path& run_dir, const Outcome& outcome) noexcept;

// RUN/logs/start-0004: what the ranks of a start have left there. Made when something is written.
std::filesystem::path start_folder(const std::filesystem::path& run_dir, int64_t start);

// `text` without line breaks, at most 1000 bytes.
std::string one_line(std::string text);

}  // namespace tessera
