// Dispatches to a command of src/cli, and turns what it throws into a message and an exit code.

#include <exception>

#include "cli/command_line.h"
#include "cli/launch_environment.h"
#include "cli/report_failure.h"

int main(int argc, char** argv) {
  try {
    return tessera::run_command_line(argc, argv);
  } catch (const std::exception& error) {
    return tessera::report_failure(error, tessera::LaunchEnvironment::read().rank);
  }
}
