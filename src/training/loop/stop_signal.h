#pragma once

#include <filesystem>

namespace tessera {

// From this call to the end of the process SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP and SIGXCPU do
// not end it but ask for a save and a stop. Those that were ignored when the process started
// (nohup, a job in the background) stay ignored; those that were blocked and are pending arrive
// now. A second Ctrl-C (SIGINT) ends the process at once, except while an Uninterrupted lives.
// docs/signals.md has the whole table.
void catch_stop_signals();

// Whether one of these signals has come.
bool stop_signal_came();

// Whether this process was asked to stop: by a signal, or by launch/run_local.sh, which cannot know
// when its ranks are ready for signals and so leaves a file for them. TESSERA_LAUNCH_FOLDER names
// the folder of these files:
//
//   stop   written by the script: save and stop
//   now    written by the script, at the second Ctrl-C: end at once
//   keep   there while an end at once would lose work; the script waits until it is gone
class StopSignal {
 public:
  StopSignal();

  // What this rank has seen. Ranks agree (stop_agreement.h) before they act on it.
  bool requested() const;

  // Throws StopRequested if requested(). For work inside agree() (parallel/comm/core/agreement.h),
  // which then throws it on all ranks.
  void check() const;

  // Lives while a save is being written: a second Ctrl-C does not end the process before the save
  // is whole. If the second Ctrl-C has come already, the constructor ends the process. `root`: this
  // rank writes the file `keep`.
  class Uninterrupted {
   public:
    Uninterrupted(const StopSignal& signal, bool root);
    ~Uninterrupted();
    Uninterrupted(const Uninterrupted&) = delete;
    Uninterrupted& operator=(const Uninterrupted&) = delete;

   private:
    std::filesystem::path file_;  // empty: none
  };

  // Call this when all is saved and the exit code is known: from then on no request to stop has an
  // effect. `root`: this rank writes the file `keep`.
  void ignore_from_now(bool root) const;

 private:
  std::filesystem::path folder_;  // empty: not started by launch/run_local.sh
};

// For tests: as if no signal had come.
void forget_stop_signals();

}  // namespace tessera
