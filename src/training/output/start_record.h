#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "training/output/outcome.h"

namespace tessera {

// What one rank knows of a start while it goes on, and how its end is told and recorded, once:
//
//   before the run folder is its own   an error is told on standard error; no file is written
//   afterwards                         of all ranks that fail the first one speaks (claim_failure);
//                                      its words go to standard error, to its file in the start's
//                                      folder and to outcome.json. The others write who was first,
//                                      and their own words, to their files alone
//
// An error that all ranks share (OfAllRanks) is told by one of them. A start that was
// replaced (ReplacedError) writes no file at all. Where a judge hears of the errors of all ranks
// (the watchdog), it is he who finds the first one, and one rank tells and records it for all
// (tell_verdict).
//
// Each rank has one, also where ranks are threads. Used by the rank's working thread; step(),
// saved() and tell_verdict() may be called from any.
class StartRecord {
 public:
  // How the words of this rank reach a person.
  struct Voice {
    // Takes the whole text, without a newline at its end. Null: nobody listens.
    std::function<void(const std::string& text)> say;
    // For an error that another rank tells too: returns when that is known to have happened (true),
    // or has not (false). Null: nobody waits.
    std::function<bool()> told_elsewhere;
    // The stack of the last throw of an exception that is none of ours; empty: not known.
    std::function<std::string()> stack;
  };

  StartRecord() = default;
  explicit StartRecord(Voice voice) : voice_(std::move(voice)) {}
  StartRecord(const StartRecord&) = delete;
  StartRecord& operator=(const StartRecord&) = delete;

  // As each becomes known.
  void set_world(int rank, int ranks);
  void set_mesh_place(const std::string& text) { mesh_place_ = text; }  // "dp 1, tp 0"
  // Where the rank is, for its error: "at step 812 in the forward pass". Without it: the last step.
  void set_where(std::function<std::string()> where) { where_ = std::move(where); }
  // The run folder is this start's. `token`: of its lock (FolderLock::token()).
  void set_folder(const std::filesystem::path& run_dir, int64_t start, const std::string& token);
  // Told an error that is this rank's alone, with its exit code. Returns the exit code of the job
  // when the error, or the one that explains it, has been told by whichever rank; nullopt: nobody
  // hears.
  using Judge = std::function<std::optional<int>(const std::string& error, int exit_code)>;
  void set_judge(Judge judge) { judge_ = std::move(judge); }
  // Lines for the readable log, of rank 0; null again when it is closed.
  void set_log(std::function<void(const std::string&)> log) { log_ = std::move(log); }
  // The last step that is done, and the newest that is committed.
  void set_step(int64_t step) { step_ = step; }
  void set_saved(int64_t step) { saved_ = step; }

  int64_t start() const { return start_; }
  int64_t step() const { return step_; }
  int64_t saved() const { return saved_; }
  const std::atomic<int64_t>& step_counter() const { return step_; }
  // "rank 3 (n2, dp 1, tp 0)".
  std::string name() const;

  // The run ends as it should; rank 0 records it. `reason`: of a stop, "request" or "stop_after".
  // ReplacedError if another start has taken the folder over.
  void done() { ended(Outcome::Kind::kDone, "", "all steps are done"); }
  void stopped(const std::string& reason);

  // This rank ends by `error`: tells and records it. Only the first call does so; all return the
  // exit code of the process.
  int failed(const std::exception& error) noexcept;
  // Whether the judge has heard it.
  bool judged() const { return judged_; }

  // What the judge has found, by a rank that is to tell it for all. `verdict`: kind, reason, cause,
  // rank and host. From any thread. claim_verdict() says whether it is the first failure of this
  // start (true also where that cannot be seen, before the run folder is its own); record_verdict()
  // then records it, and writes `text` at the end of the readable log.
  bool claim_verdict(const Outcome& verdict) noexcept;
  void record_verdict(const std::string& text, Outcome verdict) noexcept;

 private:
  void ended(Outcome::Kind kind, const std::string& reason, const std::string& cause);
  void tell(const std::exception& error);
  void tell_of_folder(const Outcome& outcome, const std::string& text);
  void say(const std::string& text);
  std::string text_of(const std::exception& error, bool own) const;
  // The error's text, and where an unexpected one was thrown.
  std::string what_of(const std::exception& error) const;
  Outcome outcome_of(Outcome::Kind kind) const;
  bool replaced() const;

  // The run folder, once it is this start's and as long as no other has taken it over.
  std::optional<std::filesystem::path> folder_of_verdict(Outcome& verdict) const;

  const Voice voice_;
  Judge judge_;
  bool judged_ = false;
  int rank_ = 0;
  int ranks_ = 1;
  std::string mesh_place_;
  std::function<std::string()> where_;
  std::function<void(const std::string&)> log_;
  mutable std::mutex folder_mutex_;  // guards the next three against record_verdict()
  std::filesystem::path run_dir_;    // empty: not owned yet
  int64_t start_ = 0;
  std::string token_;
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> saved_{0};
  bool failed_ = false;
  int code_ = 0;
};

}  // namespace tessera
