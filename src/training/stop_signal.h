#pragma once

#include <array>
#include <csignal>

namespace tessera {

// While it lives, SIGTERM, SIGINT, SIGUSR1 and SIGHUP (a lost terminal) do not end the process but
// ask for a save and a stop at the end of the step. A second SIGINT ends the process at once. One
// at a time per process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // This rank's view; ranks agree on it before they act.
  bool requested() const;

 private:
  std::array<struct sigaction, 4> before_;  // what was there, put back at the end
};

}  // namespace tessera
