// Dispatches to a command of src/cli, and turns what it throws into a message and an exit code.

#include <csignal>
#include <exception>
#include <string_view>

#include "base/process/crash_report.h"
#include "cli/command_line.h"
#include "cli/launch_environment.h"
#include "cli/report_failure.h"
#include "training/loop/stop_signal.h"

int main(int argc, char** argv) {
  // First of all, and for good: between here and the last instruction no signal may undo a save.
  // The other commands keep nothing that a signal could lose; it ends them.
  const bool trains = argc > 1 && std::string_view(argv[1]) == "train";
  if (trains) tessera::catch_stop_signals();
  // A closed pipe and a file-size limit come back as errors of the write, which say what and where.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  if (trains) tessera::report_crashes();
  try {
    return tessera::run_command_line(argc, argv);
  } catch (const std::exception& error) {
    if (trains) return tessera::report_before_mpi(error);  // run_train() tells what comes later
    return tessera::report_failure(error, tessera::LaunchEnvironment::read().rank);
  }
}
