#include "training/output/outcome.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/files/files.h"
#include "base/process/process_identity.h"
#include "base/text/utc_text.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostBytes = 1 << 16;

const char* name_of(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::kDone:
      return "done";
    case Outcome::Kind::kStopped:
      return "stopped";
    case Outcome::Kind::kUserError:
      return "user_error";
    case Outcome::Kind::kReplaced:
      return "replaced";
    case Outcome::Kind::kFailed:
      break;
  }
  return "failed";
}

bool is_failure(Outcome::Kind kind) {
  return kind == Outcome::Kind::kFailed || kind == Outcome::Kind::kUserError;
}

template <typename T>
ordered_json or_null(bool there, const T& value) {
  return there ? ordered_json(value) : ordered_json();
}

std::string text_of(const Outcome& outcome) {
  const ProcessIdentity self = ProcessIdentity::own();
  const ordered_json json = {
      {"outcome", name_of(outcome.kind)},
      {"exit_code", exit_code_of(outcome.kind)},
      {"reason", outcome.reason},
      {"cause", one_line(outcome.cause)},
      {"rank", or_null(outcome.rank.has_value(), outcome.rank.value_or(0))},
      {"host", or_null(!outcome.host.empty(), outcome.host)},
      {"step", outcome.step},
      {"newest_checkpoint", outcome.newest_checkpoint},
      {"start", outcome.start},
      {"job", or_null(!self.job.empty(), self.job)},
      {"restart", or_null(!self.job.empty(), self.restarts)},
      {"time", utc_iso_text(std::time(nullptr))},
  };
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// What a file of ours says; null where there is none, or it cannot be read.
nlohmann::json read_json(const std::filesystem::path& file) {
  try {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) return nullptr;
    const auto json = nlohmann::json::parse(read_small_file(file, kMostBytes), nullptr, false);
    return json.is_object() ? json : nlohmann::json();
  } catch (const std::exception&) {
    return nullptr;
  }
}

std::filesystem::path claim_file(const std::filesystem::path& run_dir, int64_t start) {
  return start_folder(run_dir, start) / "first-failure";
}

// What the rank wrote that was first. It makes the file and then writes it, so a reader may come in
// between.
FirstFailure read_claim(const std::filesystem::path& file) {
  constexpr int kLooks = 20;
  FirstFailure first;
  first.ours = false;
  nlohmann::json json;
  for (int look = 0; look < kLooks && !json.is_object(); ++look) {
    if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    json = read_json(file);
  }
  if (!json.is_object()) return first;
  first.cause = json.value("cause", "");
  if (json.contains("rank") && json["rank"].is_number_integer()) first.rank = json["rank"];
  if (json.contains("host") && json["host"].is_string()) first.host = json["host"];
  first.exit_code = json.value("exit_code", kExitFailed);
  first.known = true;
  return first;
}

}  // namespace

int exit_code_of(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::kDone:
      return kExitDone;
    case Outcome::Kind::kStopped:
      return kExitStopped;
    case Outcome::Kind::kUserError:
      return kExitUserError;
    case Outcome::Kind::kReplaced:
      return kExitReplaced;
    case Outcome::Kind::kFailed:
      break;
  }
  return kExitFailed;
}

std::string one_line(std::string text) {
  constexpr size_t kMost = 1000;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& character : text)
    if (static_cast<unsigned char>(character) < ' ') character = ' ';
  if (text.size() > kMost) text = text.substr(0, kMost) + " ...";
  return text;
}

std::filesystem::path start_folder(const std::filesystem::path& run_dir, int64_t start) {
  return run_dir / "logs" / fmt::format("start-{:04}", start);
}

FirstFailure claim_failure(const std::filesystem::path& run_dir, const Outcome& outcome) noexcept {
  try {
    const std::filesystem::path file = claim_file(run_dir, outcome.start);
    make_folders(folder_of(file));
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return errno == EEXIST ? read_claim(file) : FirstFailure{};
    const std::string text = text_of(outcome);
    static_cast<void>(::write(fd, text.data(), text.size()) < 0);
    ::close(fd);
  } catch (const std::exception&) {  // a full or lost file system: whoever fails speaks
  }
  return {};
}

bool record_outcome(const std::filesystem::path& run_dir, const Outcome& outcome) noexcept {
  if (outcome.kind == Outcome::Kind::kReplaced) return false;
  try {
    if (is_failure(outcome.kind)) {
      const FirstFailure first = claim_failure(run_dir, outcome);
      if (!first.ours && first.cause != one_line(outcome.cause)) return false;
    } else if (std::filesystem::exists(claim_file(run_dir, outcome.start))) {
      return false;
    }
    const std::filesystem::path file = run_dir / "logs" / "outcome.json";
    const nlohmann::json there = read_json(file);
    if (there.is_object() && there.value("start", int64_t{0}) > outcome.start) return false;
    write_file_atomic(file, text_of(outcome));
    return true;
  } catch (const std::exception&) {  // it is no reason to end otherwise than the run does
    return false;
  }
}

}  // namespace tessera
