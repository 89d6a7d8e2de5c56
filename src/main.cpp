// Dispatches to a command of src/cli, and turns what it throws into a message and an exit code.

#include <csignal>
#include <exception>
#include <string_view>

#include "cli/command_line.h"
#include "cli/launch_environment.h"
#include "cli/report_failure.h"
#include "training/loop/stop_signal.h"

int main(int argc, char** argv) {
  // First of all, and for good: between here and the last instruction no signal may undo a save.
  // The other commands keep nothing that a signal could lose; it ends them.
  if (argc > 1 && std::string_view(argv[1]) == "train") tessera::catch_stop_signals();
  // A closed pipe and a file-size limit come back as errors of the write, which say what and where.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return tessera::run_command_line(argc, argv);
  } catch (const std::exception& error) {
    return tessera::report_failure(error, tessera::LaunchEnvironment::read().rank);
  }
}
