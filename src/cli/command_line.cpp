#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/exit_codes.h"

namespace tessera {
namespace {

constexpr const char* kVersion = "tessera " TESSERA_VERSION;

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 failed; 2 the command line, configuration, data or checkpoint is wrong; "
    "3 stopped on request after a save, start again to go on.";

}  // namespace

CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description) {
  CLI::App& command = *parent.add_subcommand(name, description);
  command.set_version_flag("--version", kVersion, "Print the version and exit");
  command.footer(kExitCodes);
  return command;
}

int run_command_line(int argc, const char* const* argv) {
  CLI::App app("Trains transformers on a mesh of tensor parallelism and ZeRO-3.", "tessera");
  app.set_version_flag("--version", kVersion, "Print the version and exit");
  app.footer(kExitCodes);
  app.require_subcommand(1);
  Action action;
  add_train_command(app, action);
  add_checkpoint_command(app, action);
  add_data_command(app, action);
  add_config_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    std::string command = "tessera";
    for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
      at = at->get_subcommands().back();
      command += " " + at->get_name();
    }
    std::cerr << fmt::format("error: {}\nTry `{} --help`.\n", error.what(), command);
    return kExitUserError;
  }
  return action();
}

}  // namespace tessera
