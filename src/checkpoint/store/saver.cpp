#include "checkpoint/store/saver.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/process/start_thread.h"
#include "parallel/comm/core/agreement.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CheckpointSaver::CheckpointSaver(CheckpointManager& manager, std::unique_ptr<Communicator> group,
                                 Staging staging)
    : manager_(manager),
      group_(std::move(group)),
      staging_(std::move(staging)),
      exceptions_at_birth_(std::uncaught_exceptions()) {
  if (staging_.beside) thread_ = start_thread("saving checkpoints", [this] { run_tasks(); });
}

CheckpointSaver::~CheckpointSaver() {
  constexpr std::chrono::minutes kPatience{2};
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    changed_.notify_all();
    const auto done = [&] { return !busy_ && tasks_.empty(); };
    if (std::uncaught_exceptions() > exceptions_at_birth_ &&
        !changed_.wait_for(lock, kPatience, done))
      group_->abort(fmt::format(
          "rank {} left training because of an error, and the save that was under way did not end",
          group_->rank()));
  }
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::save(Manifest manifest, const std::vector<Piece>& pieces,
                           std::function<void()> before_commit) {
  const auto begin = Clock::now();
  wait();
  parts_ = own_parts(pieces, group_->rank());
  if (!staging_.beside) {
    DirectBytes bytes(parts_, staging_.copy_out, staging_.memory);
    run_save({std::move(manifest), parts_, bytes, std::move(before_commit)}, begin);
    return;
  }
  // Both threads hold the ring: whoever comes last to its end frees it.
  const auto ring = std::make_shared<ByteRing>(staging_.memory);
  start([this, ring, begin, manifest = std::move(manifest),
         before_commit = std::move(before_commit)] {
    RingBytes bytes(*ring);
    run_save({manifest, parts_, bytes, before_commit}, begin);
    ring->give_up();  // a save that failed takes no more
  });
  try {
    copy_into(*ring, parts_, staging_.copy_out);
  } catch (...) {
    ring->end();  // too early, which fails the save
    throw;
  }
}

void CheckpointSaver::run_save(SaveWork work, Clock::time_point begin) {
  SaveOutcome outcome;
  outcome.step = work.manifest.step;
  try {
    outcome.folder = manager_.save(std::move(work), *group_);
  } catch (const std::exception&) {
    outcome.failure = std::current_exception();
  }
  outcome.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::lock_guard lock(mutex_);
  failed_ = outcome.failure != nullptr;
  outcomes_.push_back(std::move(outcome));
}

void CheckpointSaver::retire_old() {
  start([this] {
    if (!failed()) manager_.retire_old();
  });
}

void CheckpointSaver::start(std::function<void()> task) {
  if (!staging_.beside) return task();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void CheckpointSaver::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_ && tasks_.empty(); });
}

// Ends when closing_ and nothing is left to do.
void CheckpointSaver::run_tasks() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

std::optional<SaveOutcome> CheckpointSaver::take_outcome() {
  const std::lock_guard lock(mutex_);
  if (outcomes_.empty()) return std::nullopt;
  SaveOutcome oldest = std::move(outcomes_.front());
  outcomes_.pop_front();
  return oldest;
}

bool CheckpointSaver::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

}  // namespace tessera
