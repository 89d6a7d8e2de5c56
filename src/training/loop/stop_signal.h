#pragma once

#include <filesystem>

namespace tessera {

// From this call to the end of the process SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP and SIGXCPU do
// not end it but ask for a save and a stop. Those that were ignored when the process started
// (nohup, a job in the background) stay ignored; those that were blocked and are pending arrive
// now. A second Ctrl-C (SIGINT) ends the process at once, but for what Uninterrupted says.
// docs/signals.md has the whole table.
void catch_stop_signals();

// Whether one of these signals has come.
bool stop_signal_came();

// The wish to stop as this process knows it: by a signal, or by launch/run_local.sh, which cannot
// know when its ranks are ready for signals and so leaves a file for them. TESSERA_LAUNCH_FOLDER
// names the folder of these files:
//
//   stop   written by the script: save and stop
//   now    written by the script, at the second Ctrl-C: end at once
//   keep   there while an end at once would lose work; the script waits until it is gone
class StopSignal {
 public:
  StopSignal();

  // This rank's view; ranks agree on it before they act.
  bool requested() const;

  // As requested(), for work that is no collective: throws StopRequested.
  void check() const;

  // While one lives, a save is being written, and a second Ctrl-C lets it become whole. Where the
  // second Ctrl-C came first, its constructor ends the process. `root`: this rank keeps the file.
  class Uninterrupted {
   public:
    Uninterrupted(const StopSignal& signal, bool root);
    ~Uninterrupted();
    Uninterrupted(const Uninterrupted&) = delete;
    Uninterrupted& operator=(const Uninterrupted&) = delete;

   private:
    std::filesystem::path file_;  // empty: none
  };

  // All is saved and the exit code is known: from here on no request changes anything.
  void ignore_from_now(bool root) const;

 private:
  std::filesystem::path folder_;  // empty: not started by launch/run_local.sh
};

// For tests: as if no signal had come.
void forget_stop_signals();

}  // namespace tessera
