#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/store/manager.h"

namespace tessera {

// How one save ended.
struct SaveOutcome {
  int64_t step = 0;
  std::filesystem::path folder;  // that is committed; empty if the save failed
  double seconds = 0.0;          // from the call of save() to the commit
  std::exception_ptr failure;    // null: it is committed
};

// clang-format off
// Saves the steps of a run, beside training or in line with it:
//
//   caller   | waits for the save before | copies its parts into staging memory | trains on
//   thread   |                           |                                      | writes, fsyncs, agrees, commits
//
// (as CheckFreq, Mohan et al. 2021, and PyTorch's async_save do). Where the staging memory holds
// less than this rank writes, it is a ring: the caller waits until the last of its bytes is in it.
// Without staging memory save() returns when the step is committed.
//
// Ranks agree in a group of their own, so training's communication goes on beside it. How a save
// ended is the same on all ranks, but they may learn it some steps apart: whoever acts on it must
// agree first, or wait().
// clang-format on
class CheckpointSaver {
 public:
  struct Staging {
    bool beside = false;  // saves run beside the caller
    // beside: the ring that states are copied into; else what copy_out needs, if it is set.
    std::span<std::byte> memory = {};
    CopyOut copy_out = {};  // how the memory of pieces is read
  };
  // `manager` and the staging memory outlive this object; `group` holds the same ranks as the
  // manager's, and nobody else uses it.
  CheckpointSaver(CheckpointManager& manager, std::unique_ptr<Communicator> group, Staging staging);
  // Waits for what is under way: a save that all ranks still work on is completed, even if the
  // caller leaves because of an error. It is given up if the world is aborted, and in the case of
  // an error if it takes more than two minutes: it may wait for a rank that is gone.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Starts the save of a step, after that of the step before; collective. The pieces may change
  // when it returns. before_commit: SaveWork; it may be called from another thread. Failures of the
  // save are its outcome; what is thrown is a failure to copy.
  void save(Manifest manifest, const std::vector<Piece>& pieces,
            std::function<void()> before_commit);

  // Removes what retention lets go (CheckpointManager::retire_old()), after the saves that were
  // started and only if the last of them succeeded.
  void retire_old();

  // Returns when all that was started is done.
  void wait();

  // The outcome of the oldest save that is done and was not asked for yet.
  std::optional<SaveOutcome> take_outcome();
  // Whether the last save that is done has failed.
  bool failed() const;

 private:
  void run_save(SaveWork work, std::chrono::steady_clock::time_point start);
  void start(std::function<void()> task);
  void run_tasks();

  CheckpointManager& manager_;
  std::unique_ptr<Communicator> group_;
  const Staging staging_;
  const int exceptions_at_birth_;
  std::vector<OwnPart> parts_;  // of the save under way

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false;
  bool closing_ = false;
  bool failed_ = false;
  std::deque<SaveOutcome> outcomes_;
  std::thread thread_;
};

}  // namespace tessera
