#include "base/files/owner_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/system_error.h"

namespace tessera {
namespace {

using Say = std::function<void(const std::string&)>;

// What a file says at one moment; two that differ show that somebody lives.
struct Look {
  std::string text;
  timespec changed{};

  bool operator==(const Look& other) const {
    return text == other.text && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

// Opened anew each time: that is what makes a network file system ask its server. nullopt: it is
// not there.
std::optional<Look> look_at(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return std::nullopt;
    fail("files", "cannot open {}: {}", file.string(), reason_of(errno));
  }
  Look seen;
  char text[4096];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  if (size > 0) seen.text.assign(text, static_cast<size_t>(size));
  struct stat info {};
  if (::fstat(fd, &info) == 0) seen.changed = info.st_mtim;
  ::close(fd);
  return seen;
}

int64_t seconds(std::chrono::milliseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

// An owner changes its file again and again, but not its token. A file that says nothing has none.
bool same_owner(const Look& one, const Look& other) {
  const auto owner = ProcessIdentity::parse(one.text);
  return owner.token.empty() ? one.text == other.text
                             : owner.token == ProcessIdentity::parse(other.text).token;
}

// What a file says whose owner may be put off.
struct Judged {
  Look look;
  bool ended;  // the owner, for certain
};

// Returns when the owner of `file` may be put off: it is certain enough that it has ended, or it is
// an earlier turn of this job and was waited for. nullopt if the file has gone meanwhile. UserError
// if the owner lives.
std::optional<Judged> wait_for_end(const std::filesystem::path& file, const std::string& refusal,
                                   const Say& say, const OwnerFile::Times& times,
                                   const std::function<void()>& give_up) {
  const std::optional<Look> first = look_at(file);
  if (!first) return std::nullopt;
  const ProcessIdentity owner = ProcessIdentity::parse(first->text);
  const auto refuse = [&](const ProcessIdentity& who) {
    fail_user("files", "{} ({}); wait for it, or choose another folder", refusal, who.describe());
  };
  const bool earlier_turn = ProcessIdentity::own().is_later_turn_of(owner);
  if (owner.life() == ProcessIdentity::Life::kEnded) return Judged{*first, true};
  if (owner.life() == ProcessIdentity::Life::kRuns && !earlier_turn) refuse(owner);
  const std::chrono::milliseconds limit = earlier_turn ? times.turn : times.silent;
  if (say)
    say(earlier_turn
            ? fmt::format("{} says: {}; an earlier turn of this job: waiting up to {} s for its "
                          "end",
                          file.string(), owner.describe(), seconds(limit))
            : fmt::format("{} says: {}; whether that still runs cannot be seen from here: waiting "
                          "{} s for a sign of life",
                          file.string(), owner.describe(), seconds(limit)));
  for (auto waited = std::chrono::milliseconds(0); waited < limit; waited += times.look) {
    std::this_thread::sleep_for(times.look);
    if (give_up) give_up();
    const std::optional<Look> now = look_at(file);
    if (!now) return std::nullopt;
    if (earlier_turn ? !same_owner(*first, *now) : !(*now == *first))
      refuse(ProcessIdentity::parse(now->text));
  }
  return Judged{*first, false};
}

// Removes `file` if it still is the one that `judged` was read from; true if this call has done so.
bool remove_judged(const std::filesystem::path& file, const Look& judged,
                   const std::string& token) {
  const std::filesystem::path aside = fmt::format("{}.{}", file.string(), token);
  if (::rename(file.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return false;
    fail("files", "cannot rename {}: {}", file.string(), reason_of(errno));
  }
  const std::optional<Look> moved = look_at(aside);
  if (moved && same_owner(judged, *moved)) {
    ::unlink(aside.c_str());
    return true;
  }
  // Another newcomer was quicker, and this is its file: put it back. That newcomer looks at it
  // after `settle`.
  ::rename(aside.c_str(), file.c_str());
  return false;
}

}  // namespace

OwnerFile::OwnerFile(std::filesystem::path file, const std::string& refusal, const Say& say,
                     Times times, const std::function<void()>& give_up)
    : file_(std::move(file)), times_(times) {
  for (bool settle = false;;) {
    const int fd = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
      const std::string text = self_.to_text() + "\n";
      const ssize_t written = ::write(fd, text.data(), text.size());
      const int error = errno;
      ::close(fd);
      if (written != static_cast<ssize_t>(text.size())) {
        ::unlink(file_.c_str());
        fail("files", "cannot write {}: {}", file_.string(),
             reason_of(written < 0 ? error : ENOSPC));
      }
      if (!settle) break;
      std::this_thread::sleep_for(times_.settle);
      const auto seen = look_at(file_);
      const auto owner = ProcessIdentity::parse(seen ? seen->text : "");
      if (owner.token == self_.token) break;
      fail_user("files", "{} ({}); wait for it, or choose another folder", refusal,
                owner.describe());
    }
    if (errno != EEXIST) fail("files", "cannot create {}: {}", file_.string(), reason_of(errno));
    if (const auto judged = wait_for_end(file_, refusal, say, times_, give_up)) {
      remove_judged(file_, judged->look, self_.token);
      took_over_ = took_over_ || !judged->ended;
    }
    settle = true;
  }
  thread_ = std::thread([this] { show_life(); });
}

OwnerFile::~OwnerFile() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
  if (!replaced()) ::unlink(file_.c_str());
}

bool OwnerFile::expect_none(const std::filesystem::path& file, const std::string& refusal,
                            const Say& say, Times times, const std::function<void()>& give_up) {
  const auto judged = wait_for_end(file, refusal, say, times, give_up);
  return judged && remove_judged(file, judged->look, ProcessIdentity::own().token) &&
         !judged->ended;
}

void OwnerFile::check() const {
  const std::optional<Look> seen = lost_ ? std::nullopt : look_at(file_);
  const auto owner = ProcessIdentity::parse(seen ? seen->text : "");
  // What cannot be parsed is being written.
  if (seen && (owner.token.empty() || owner.token == self_.token)) return;
  throw ReplacedError(
      fmt::format("[files] {} is another process's now: this one was stopped, was cut off, or "
                  "could not write there; it ends and writes nothing more",
                  file_.string()));
}

bool OwnerFile::replaced() const {
  try {
    check();
    return false;
  } catch (const ReplacedError&) {
    return true;
  } catch (const Error&) {  // it cannot be told now
    return false;
  }
}

void OwnerFile::show_life() {
  uint64_t beats = 0;
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, times_.beat, [&] { return stop_; }) && !lost_) {
    lock.unlock();
    const int fd = ::open(file_.c_str(), O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
      char text[4096];
      const ssize_t size = ::pread(fd, text, sizeof text, 0);
      // A read that fails is tried again at the next beat; only the token of another process is
      // certain.
      if (size > 0) {
        const auto owner = ProcessIdentity::parse({text, static_cast<size_t>(size)});
        if (owner.token == self_.token) {
          const std::string beat = fmt::format("{}\n{:020}\n", self_.to_text(), ++beats);
          static_cast<void>(::pwrite(fd, beat.data(), beat.size(), 0) < 0);
        } else if (!owner.token.empty()) {
          lost_ = true;
        }
      }
      ::close(fd);
    } else if (errno == ENOENT) {
      lost_ = true;  // renamed by a newcomer, or removed by hand: others may come in
    }
    lock.lock();
  }
}

}  // namespace tessera
