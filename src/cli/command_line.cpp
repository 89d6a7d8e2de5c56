#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/process/omp_num_threads.h"
#include "base/text/nearest.h"
#include "base/version.h"
#include "kernels/cpu_target.h"

namespace tessera {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 failed; 2 the command line, configuration, data or checkpoint is wrong; "
    "3 stopped on request with nothing lost, start again to go on; 4 another start has taken over.";

// CLI11's message, except where a command has a wrong name: it would only say that one is missing.
std::string what_is_wrong(const CLI::App& at, const CLI::ParseError& error) {
  std::vector<std::string> names;
  for (const CLI::App* command : at.get_subcommands({})) names.push_back(command->get_name());
  const std::vector<std::string> left = at.remaining();
  for (const char* ranks : {"-n", "-np", "--ranks"})
    if (at.get_name() == "train" && std::find(left.begin(), left.end(), ranks) != left.end())
      return fmt::format(
          "{}: tessera train is one process of a run; start several with launch/run_local.sh "
          "CONFIG -n RANKS, or with mpirun or srun",
          ranks);
  if (names.empty() || left.empty() || left[0].starts_with("-")) return error.what();
  const int near = nearest(left[0], names);
  return fmt::format(
      "unknown command {}; {}commands: {}", left[0],
      near < 0 ? "" : fmt::format("did you mean {}? ", names[static_cast<size_t>(near)]),
      fmt::join(names, ", "));
}

}  // namespace

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::cout << "note: " << note << "\n";
}

CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description) {
  CLI::App& command = *parent.add_subcommand(name, description);
  command.set_version_flag("--version", program_version(), "Print the version and exit");
  command.footer(kExitCodes);
  return command;
}

int run_command_line(int argc, const char* const* argv) {
  CLI::App app("Trains transformers on a mesh of tensor parallelism and ZeRO-3.", "tessera");
  app.set_version_flag("--version", program_version(), "Print the version and exit");
  app.footer(kExitCodes);
  app.require_subcommand(1);
  Action action;
  add_train_command(app, action);
  add_checkpoint_command(app, action);
  add_data_command(app, action);
  add_config_command(app, action);
  add_launch_command(app, action);
  add_doctor_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    const CLI::App* at = &app;
    std::string command = "tessera";
    while (!at->get_subcommands().empty()) {
      at = at->get_subcommands().back();
      command += " " + at->get_name();
    }
    throw UserError(fmt::format("{}\nTry `{} --help`.", what_is_wrong(*at, error), command));
  }
  // What the environment asks for is input as well, and wrong input is found before anything is
  // done.
  kernels::cpu_target();
  omp_num_threads();
  const int code = action();
  // A full disk or a closed pipe: what was asked for did not arrive.
  if (!std::cout.flush()) fail("cli", "the output could not be written: {}", std::strerror(errno));
  return code;
}

}  // namespace tessera
