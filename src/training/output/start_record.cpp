#include "training/output/start_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/exit_codes.h"
#include "base/files/folder_lock.h"
#include "base/process/host_name.h"
#include "training/output/rank_log.h"

namespace tessera {
namespace {

// How long ranks leave an error that all share to the one that is to tell it.
constexpr std::chrono::milliseconds kOtherFirst{500};

// Whether all ranks have the error, and who is to tell it for them.
struct Sharing {
  bool shared = false;
  int culprit = -1;  // -1: it is no single rank's
  int teller() const { return std::max(culprit, 0); }
};

// A user's mistake is one that all ranks find: the configuration and what they have read of files
// is compared.
Sharing sharing_of(const std::exception& error) {
  if (const auto* mark = dynamic_cast<const OfAllRanks*>(&error)) return {true, mark->culprit()};
  return {dynamic_cast<const UserError*>(&error) != nullptr, -1};
}

// Not through the console, whose thread may be the one that hangs.
void append_to_log(const std::filesystem::path& log, const std::string& text) {
  if (std::FILE* file = std::fopen(log.c_str(), "a")) {
    std::fprintf(file, "%s\n", text.c_str());
    std::fclose(file);
  }
}

Outcome::Kind kind_of(const std::exception& error) {
  return exit_code_of(error) == kExitUserError ? Outcome::Kind::kUserError : Outcome::Kind::kFailed;
}

}  // namespace

void StartRecord::set_world(int rank, int ranks) {
  rank_ = rank;
  ranks_ = ranks;
}

void StartRecord::set_folder(const std::filesystem::path& run_dir, int64_t start,
                             const std::string& token) {
  const std::lock_guard lock(folder_mutex_);
  run_dir_ = run_dir;
  start_ = start;
  token_ = token;
}

std::string StartRecord::name() const {
  return fmt::format("rank {} ({}{}{})", rank_, host_name(), mesh_place_.empty() ? "" : ", ",
                     mesh_place_);
}

bool StartRecord::replaced() const {
  return !run_dir_.empty() && FolderLock::names_other(run_dir_, token_);
}

void StartRecord::say(const std::string& text) {
  if (voice_.say) voice_.say(text);
}

Outcome StartRecord::outcome_of(Outcome::Kind kind) const {
  Outcome outcome;
  outcome.kind = kind;
  outcome.step = step_;
  outcome.newest_checkpoint = saved_;
  outcome.start = start_;
  return outcome;
}

void StartRecord::stopped(const std::string& reason) {
  ended(Outcome::Kind::kStopped, reason, fmt::format("stopped after step {}", step_.load()));
}

void StartRecord::ended(Outcome::Kind kind, const std::string& reason, const std::string& cause) {
  if (rank_ != 0 || run_dir_.empty()) return;
  if (replaced())
    throw ReplacedError(
        fmt::format("[files] another start of this run has taken {} over; this one ends and writes "
                    "nothing more",
                    run_dir_.string()));
  Outcome outcome = outcome_of(kind);
  outcome.reason = reason;
  outcome.cause = cause;
  record_outcome(run_dir_, outcome);
}

int StartRecord::failed(const std::exception& error) noexcept {
  if (failed_) return code_;
  failed_ = true;
  code_ = exit_code_of(error);
  try {
    tell(error);
  } catch (const std::exception&) {  // out of memory, say: the exit code must do
  }
  return code_;
}

std::string StartRecord::text_of(const std::exception& error, bool own) const {
  std::string text = "error: ";
  if (own && ranks_ > 1) {
    const std::string where = where_      ? where_()
                              : step_ > 0 ? fmt::format("after step {}", step_.load())
                                          : std::string();
    text += fmt::format("{}{}{}: ", name(), where.empty() ? "" : " ", where);
  }
  return text + what_of(error);
}

std::string StartRecord::what_of(const std::exception& error) const {
  std::string text = error.what();
  // LibTorch's errors bring a stack of their own.
  constexpr const char* kHasStack = "most recent call first";
  if (dynamic_cast<const Error*>(&error) != nullptr || !voice_.stack ||
      text.find(kHasStack) != std::string::npos)
    return text;
  const std::string stack = voice_.stack();
  return stack.empty() ? text : fmt::format("{}\n{}", text, stack);
}

std::optional<std::filesystem::path> StartRecord::folder_of_verdict(Outcome& verdict) const {
  const std::lock_guard lock(folder_mutex_);
  if (run_dir_.empty() || replaced()) return std::nullopt;
  verdict.start = start_;
  verdict.step = step_;
  verdict.newest_checkpoint = saved_;
  return run_dir_;
}

bool StartRecord::claim_verdict(const Outcome& verdict) noexcept {
  try {
    Outcome whole = verdict;
    const auto run_dir = folder_of_verdict(whole);
    return !run_dir || claim_failure(*run_dir, whole).ours;
  } catch (const std::exception&) {  // better told twice than never
    return true;
  }
}

void StartRecord::record_verdict(const std::string& text, Outcome verdict) noexcept {
  try {
    const auto run_dir = folder_of_verdict(verdict);
    if (!run_dir) return;
    append_to_log(*run_dir / "logs" / "train.log", text);
    record_outcome(*run_dir, verdict);
  } catch (const std::exception&) {  // it has been told
  }
}

void StartRecord::tell(const std::exception& error) {
  const Sharing sharing = sharing_of(error);
  const bool teller = !sharing.shared || rank_ == sharing.teller();
  // If a rank that is not to tell it does so all the same, it is the only one that has the error.
  const std::string text = text_of(error, !sharing.shared || !teller);
  if (dynamic_cast<const ReplacedError*>(&error) != nullptr || replaced()) {
    code_ = kExitReplaced;
    if (teller) say(text);
    return;
  }
  if (judge_ && !sharing.shared) {
    if (const auto code = judge_(what_of(error), code_)) {
      code_ = *code;
      judged_ = true;
      if (!run_dir_.empty()) write_rank_log(run_dir_, start_, rank_, text_of(error, true));
      return;
    }
  }
  if (run_dir_.empty()) {
    if (teller || !voice_.told_elsewhere || !voice_.told_elsewhere()) say(text);
    return;
  }
  if (!teller && voice_.say) std::this_thread::sleep_for(kOtherFirst);
  Outcome outcome = outcome_of(kind_of(error));
  outcome.reason = "error";
  outcome.cause = error.what();
  // A rank that is not to tell it, and is the first all the same, is the only one that has it.
  if (!sharing.shared || sharing.culprit == rank_ || (!teller && sharing.culprit < 0)) {
    outcome.rank = rank_;
    outcome.host = host_name();
  } else if (sharing.culprit >= 0) {
    outcome.rank = sharing.culprit;
  }
  tell_of_folder(outcome, text);
}

void StartRecord::tell_of_folder(const Outcome& outcome, const std::string& text) {
  const FirstFailure first = claim_failure(run_dir_, outcome);
  if (first.ours) {
    say(text);
    write_rank_log(run_dir_, start_, rank_, text);
    if (log_) log_(text);
    record_outcome(run_dir_, outcome);
    return;
  }
  if (first.known) code_ = first.exit_code;
  if (first.cause == one_line(outcome.cause)) return;  // told already
  const std::string who =
      first.rank ? fmt::format("rank {}{}", *first.rank,
                               first.host.empty() ? "" : fmt::format(" ({})", first.host))
                 : std::string("another rank");
  const std::string line = fmt::format("{} failed: {}; {} ended because of it", who, first.cause,
                                       ranks_ > 1 ? name() : "this process");
  write_rank_log(run_dir_, start_, rank_, fmt::format("{}\n{}", line, text));
  if (log_) log_("error: " + line);
}

}  // namespace tessera
