#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/process/host_name.h"
#include "base/process/place.h"
#include "config/watchdog_section.h"
#include "parallel/comm/core/comm_record.h"
#include "training/watch/progress_clock.h"
#include "training/watch/socket.h"
#include "training/watch/verdict.h"

namespace tessera {

class Hub;
class Spoke;

struct WatchdogOptions {
  WatchdogSection limits;
  int rank = 0;
  int ranks = 1;
  std::string id;                    // the same on all ranks of this start alone (launch_id())
  std::filesystem::path log_folder;  // RUN/logs

  // Whether this rank is the first of this start to have one; of those that take themselves for the
  // one to tell it, all others keep silent. From a thread of its own.
  std::function<bool(const Verdict&)> claim = [](const Verdict&) { return true; };
  // Tells the verdict to the user, on one rank, before anything ends.
  std::function<void(const Verdict&)> tell;
  // Writes it to files, on the same rank and from a thread of its own: the file system may hang as
  // the run does.
  std::function<void(const Verdict&)> record = [](const Verdict&) {};
  // Ends the process at once, from any thread. It must not return.
  std::function<void(int exit_code)> end_process;
  // Whether this process was asked to stop, such as by a launcher that ends the job.
  std::function<bool()> asked_to_stop = [] { return false; };
};

// Watches a run of several ranks from beside it: a thread on each rank, which says over connections
// of its own (hub.h) where the rank is, that it is alive, and which error ends it. It works before
// MPI does, and when MPI hangs. Rank 0 judges what it hears (verdict.h); where rank 0 itself is
// gone or stopped, the lowest rank that is left does.
//
//   something is wrong -> one rank tells the verdict and writes RUN/logs/hang-TIME.txt
//                      -> all ranks hear it; their collectives are aborted, with it as the reason
//                      -> a process that is still there after a few seconds is ended
//
// All ranks but the one that tells keep silent, so that the verdict is the first and the last that
// is said. If the connections cannot be made, that is a warning, and the run goes on unwatched.
class Watchdog {
 public:
  // `place`: where this rank is; outlives the watchdog. The thread starts now.
  Watchdog(const Place& place, WatchdogOptions options);
  // Says goodbye: the rank ends in order, or (while an exception unwinds) with an error.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // While it lives, the watchdog knows what the rank's communicators do, and can abort them. Both
  // functions are called from its thread.
  class World {
   public:
    World(Watchdog& watchdog, std::function<std::vector<GroupView>()> record,
          std::function<void(const std::string& reason)> abort);
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

   private:
    Watchdog& watchdog_;
  };

  // This rank's coordinates in the mesh.
  void set_mesh_place(int dp, int tp);

  // For rank 0, once all ranks have met: why some or all of them are not watched; empty: all are.
  std::string warning() const;

  // An error ends this rank. Returns once the error, or the one that explains it, has been told (on
  // whichever rank), with the exit code of the job: this rank then says nothing more, and ends at
  // once. nullopt: nobody hears it, and this rank tells it itself.
  std::optional<int> report(const std::string& error, int exit_code);

 private:
  struct Failure {
    std::string error;
    int exit_code;
  };

  void work();
  void open_channel();
  RankState look(double seconds);
  void wait_for_news();
  void watch_as_hub(const RankState& own, bool beat);
  void watch_as_spoke(const RankState& own, bool beat);
  VerdictRules rules() const;
  bool speaks_for_rank_0() const;
  void pronounce(Verdict verdict, const std::vector<RankState>& states);
  void finish(const std::string& text, int exit_code, std::chrono::milliseconds grace);
  bool closing() const;
  void wake();

  const Place& place_;
  const WatchdogOptions options_;
  const std::string host_ = host_name();
  const int exceptions_at_birth_;

  // Of the thread alone.
  std::unique_ptr<Hub> hub_;
  std::unique_ptr<Spoke> spoke_;
  ProgressClock progress_;
  double failed_for_ = 0.0;  // seconds since this rank's error
  bool failure_sent_ = false;

  const Socket wake_;  // an eventfd: what it has to do has changed

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::function<std::vector<GroupView>()> record_;
  std::function<void(const std::string&)> abort_;
  int dp_ = -1, tp_ = -1;
  std::string trouble_;           // why there is no channel
  std::vector<int> unconnected_;  // ranks that were never heard of
  bool joined_ = false;           // there is a channel, and on ranks above 0 a connection
  bool alone_ = false;            // rank 0 has ended in order
  std::optional<Failure> failure_;
  std::optional<int> told_;  // exit code
  bool closing_ = false;

  std::thread thread_;
};

}  // namespace tessera
