#include "training/watch/watchdog.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <exception>
#include <future>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/process/start_thread.h"
#include "training/watch/hub.h"
#include "training/watch/launcher.h"
#include "training/watch/spoke.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{100};  // between two looks of the thread
constexpr double kBeat = 1.0;       // seconds between heartbeats

// What a rank's communicators do is told once it stands still for so long. A rank that gets on has
// nothing to explain.
constexpr double kStandsStill = 1.0;

// How long processes have to end by themselves after a verdict: their collectives throw now. The
// rank that has told it goes first.
constexpr milliseconds kGrace{1500}, kGraceOfOthers{3000};

// How long an error waits for the word that it, or its cause, has been told: ranks that only see
// that others have failed wait for the cause (VerdictRules::cause).
constexpr milliseconds kTellLimit{5000};
constexpr milliseconds kJoinLimit{1000};

// Rank 0 is gone: a rank of another host speaks if the lowest rank that is left (it may have been
// on rank 0's machine) has not ended the job by then.
constexpr double kSecondSpeaker = 1.5;

// What a verdict leaves in files must not keep the job from ending.
constexpr milliseconds kClaimLimit{1000}, kFileLimit{2000};

// Runs `work` in a thread of its own, and returns when it is done or has taken as long as `limit`.
void run_for_at_most(milliseconds limit, std::function<void()> work) {
  const auto done = std::make_shared<std::promise<void>>();
  const auto finished = done->get_future();
  std::thread([done, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception&) {  // the verdict itself has been told
    }
    done->set_value();
  }).detach();
  finished.wait_for(limit);
}

std::string time_for_name() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts)};
}

}  // namespace

Watchdog::Watchdog(const Place& place, WatchdogOptions options)
    : place_(place),
      options_(std::move(options)),
      exceptions_at_birth_(std::uncaught_exceptions()),
      progress_(options_.limits),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (options_.rank == 0)
    for (int rank = 1; rank < options_.ranks; ++rank) unconnected_.push_back(rank);
  thread_ = start_thread("the watchdog", [this] { work(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    if (std::uncaught_exceptions() > exceptions_at_birth_ && !failure_)
      failure_ = Failure{"it was ended by an error", 1};
    closing_ = true;
  }
  wake();
  thread_.join();
}

Watchdog::World::World(Watchdog& watchdog, std::function<std::vector<GroupView>()> record,
                       std::function<void(const std::string&)> abort)
    : watchdog_(watchdog) {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.record_ = std::move(record);
  watchdog_.abort_ = std::move(abort);
}

Watchdog::World::~World() {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.record_ = nullptr;
  watchdog_.abort_ = nullptr;
}

void Watchdog::set_mesh_place(int dp, int tp) {
  const std::lock_guard lock(mutex_);
  dp_ = dp;
  tp_ = tp;
}

std::string Watchdog::warning() const {
  const std::lock_guard lock(mutex_);
  if (!trouble_.empty()) return "the ranks are not watched: " + trouble_;
  if (unconnected_.empty()) return "";
  return fmt::format(
      "the watchdog does not hear of {}: its connections go over TCP between all addresses of the "
      "nodes, and the file that names them is in {}",
      ranks_text(unconnected_), options_.log_folder.string());
}

std::optional<int> Watchdog::report(const std::string& error, int exit_code) {
  std::unique_lock lock(mutex_);
  // An error of the first moments: the connections are being made.
  changed_.wait_for(lock, kJoinLimit,
                    [this] { return told_ || joined_ || alone_ || !trouble_.empty(); });
  if (told_) return told_;
  if (!joined_) return std::nullopt;
  failure_ = Failure{error, exit_code};
  wake();
  changed_.wait_for(lock, kTellLimit, [this] { return told_.has_value() || !joined_; });
  return told_;
}

bool Watchdog::closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

void Watchdog::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof one);
}

void Watchdog::wait_for_news() {
  if (hub_)
    hub_->work(kLook, wake_.fd());
  else
    spoke_->work(kLook, wake_.fd(), [this] { return closing(); });
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.fd(), &count, sizeof count);
}

void Watchdog::open_channel() {
  if (options_.id.empty())
    fail("watch", "this launcher gives its ranks nothing in common before MPI starts");
  const std::filesystem::path file = meeting_path(options_.log_folder, options_.id);
  if (options_.rank == 0) {
    hub_ = std::make_unique<Hub>(options_.ranks, file, hosts_of_ranks(options_.ranks));
    const std::lock_guard lock(mutex_);
    joined_ = true;
  } else {
    spoke_ = std::make_unique<Spoke>(options_.rank, options_.ranks, host_, file);
  }
}

// The thread. It must not throw: whatever goes wrong with watching is no reason to end a run.
void Watchdog::work() {
  try {
    open_channel();
    auto last = Clock::now();
    double since_beat = kBeat;
    bool left = false;
    while (!left) {
      wait_for_news();
      const auto now = Clock::now();
      // Only time in which this thread runs counts: after a stop of all processes nobody is late.
      const double seconds =
          std::min(0.5, std::chrono::duration<double>(now - std::exchange(last, now)).count());
      since_beat += seconds;
      // Due until it can be sent: a rank that is stopped before its first one could not be judged.
      const bool beat = since_beat >= kBeat;
      if (beat && (hub_ || spoke_->joined())) since_beat = 0.0;
      if (hub_)
        hub_->count(seconds);
      else
        spoke_->count(seconds);
      const RankState own = look(seconds);
      left = closing();
      if (hub_)
        watch_as_hub(own, beat);
      else
        watch_as_spoke(own, beat);
    }
    if (!failure_sent_) hub_ ? hub_->leave() : spoke_->leave();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    trouble_ = error.what();
    joined_ = false;
    changed_.notify_all();
  }
}

// What this rank says of itself.
RankState Watchdog::look(double seconds) {
  RankState own;
  own.rank = options_.rank;
  own.host = host_;
  own.life = RankState::Life::kLive;
  own.place = place_.view();
  progress_.look(own.place, seconds);
  own.quiet = progress_.quiet();
  own.limit = progress_.limit();
  own.key = progress_.key();
  const std::lock_guard lock(mutex_);
  if (failure_) failed_for_ += seconds;
  own.dp = dp_;
  own.tp = tp_;
  if (record_ && own.quiet >= kStandsStill) own.groups = record_();
  return own;
}

void Watchdog::watch_as_hub(const RankState& own, bool beat) {
  std::vector<RankState>& states = hub_->states();
  RankState& mine = states[0];
  mine = own;
  {
    const std::lock_guard lock(mutex_);
    if (told_) return;
    if (failure_) {
      mine.life = RankState::Life::kFailed;
      mine.end = failure_->error;
      mine.exit_code = failure_->exit_code;
      mine.silent = failed_for_;
      failure_sent_ = true;
    }
    unconnected_.clear();
    for (RankState& state : states) {
      if (state.life != RankState::Life::kAbsent) continue;
      unconnected_.push_back(state.rank);
      state.limit = static_cast<double>(options_.limits.start);
      state.key = "watchdog.start";
    }
  }
  if (beat || hub_->has_news()) hub_->beat();
  if (auto verdict = judge(states, rules())) pronounce(std::move(*verdict), states);
}

// A launcher that ends the job leaves little time to say why.
VerdictRules Watchdog::rules() const {
  VerdictRules rules;
  if (options_.asked_to_stop()) rules.settle = 0.1;
  return rules;
}

void Watchdog::watch_as_spoke(const RankState& own, bool beat) {
  std::vector<RankState>& states = spoke_->states();
  states[static_cast<size_t>(options_.rank)] = own;
  std::optional<Failure> failure;
  {
    const std::lock_guard lock(mutex_);
    if (told_) return;
    alone_ = states[0].life == RankState::Life::kLeft;
    joined_ = spoke_->joined() && !alone_;
    if (joined_ || alone_) changed_.notify_all();
    if (!failure_sent_) failure = failure_;
  }
  if (beat || failure) spoke_->beat();  // the place goes before the error
  if (failure) {
    spoke_->fail(failure->error, failure->exit_code);
    failure_sent_ = true;
  }
  if (const auto& told = spoke_->told()) return finish(told->text, told->exit_code, kGraceOfOthers);
  // Of the other ranks rank 0 judges, and of rank 0 they do.
  std::vector<RankState> rank_0 = states;
  rank_0[static_cast<size_t>(options_.rank)].limit = 0.0;
  auto verdict = judge(rank_0, rules());
  if (!verdict) return;
  if (speaks_for_rank_0()) return pronounce(std::move(*verdict), states);
  finish(verdict->text, verdict->exit_code, kGraceOfOthers);
}

// The lowest rank that is left speaks; and if it ends nothing, the lowest that is left on another
// host than rank 0's. All others wait as long before they end: a launcher that sees one end wakes
// rank 0, if that was stopped, which would then blame the one that has ended.
bool Watchdog::speaks_for_rank_0() const {
  const auto lowest = [&](bool elsewhere) {
    const auto& states = spoke_->states();
    for (const RankState& state : states)
      if (state.rank > 0 && state.life == RankState::Life::kLive &&
          !(elsewhere && state.host == states[0].host))
        return state.rank;
    return -1;
  };
  if (lowest(false) == options_.rank) return true;
  for (double waited = 0.0; waited < kSecondSpeaker; waited += kLook.count() * 1e-3) {
    if (options_.asked_to_stop() || closing()) return false;
    std::this_thread::sleep_for(kLook);
  }
  return lowest(true) == options_.rank;
}

void Watchdog::pronounce(Verdict verdict, const std::vector<RankState>& states) {
  const std::string found = verdict.text;
  const std::filesystem::path file =
      options_.log_folder / fmt::format("hang-{}.txt", time_for_name());
  const bool dumps = verdict.reason != Verdict::Reason::kError;
  if (dumps) verdict.text += fmt::format("\nwhat each rank did: {}", file.string());
  // Ranks that have heard too little of each other may all take themselves for the lowest that is
  // left, and one that was stopped while it was judged finds the others gone.
  const auto another_was_first = std::make_shared<std::atomic<bool>>(false);
  run_for_at_most(kClaimLimit, [claim = options_.claim, verdict, another_was_first] {
    *another_was_first = !claim(verdict);
  });
  if (*another_was_first) return finish(found, verdict.exit_code, kGrace);
  options_.tell(verdict);
  // What this needs is copied: a file system that hangs is left behind with it.
  std::string dump = dumps ? found + "\n\n" + dump_text(states) + "\n" : "";
  run_for_at_most(kFileLimit, [record = options_.record, verdict, file, dump = std::move(dump)] {
    record(verdict);
    if (!dump.empty()) write_file_atomic(file, dump);
  });
  // The other ranks are told last: from then on the job ends.
  if (hub_) hub_->tell(found, verdict.exit_code);
  finish(found, verdict.exit_code, kGrace);
}

// It is over. The working thread, if it waits in a collective or for this, ends the process now; if
// it does not, this thread does.
void Watchdog::finish(const std::string& text, int exit_code, milliseconds grace) {
  {
    const std::lock_guard lock(mutex_);
    told_ = exit_code;
    if (abort_) abort_(text);
    changed_.notify_all();
  }
  const auto end = Clock::now() + grace;
  while (!closing() && Clock::now() < end) {
    wait_for_news();
    // A launcher that ends the job would otherwise wait for this rank.
    if (options_.asked_to_stop() && (!hub_ || hub_->all_sent())) break;
  }
  options_.end_process(exit_code);
}

}  // namespace tessera
