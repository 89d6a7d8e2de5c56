#include <CLI/CLI.hpp>

#include "cli/checkpoint_commands.h"

namespace tessera {

void add_checkpoint_command(CLI::App& app, Action& action) {
  CLI::App& command =
      add_command(app, "checkpoint", "List, check, compare and convert checkpoints.");
  command.require_subcommand(1);
  add_list(command, action);
  add_inspect(command, action);
  add_verify(command, action);
  add_diff(command, action);
  add_consolidate(command, action);
  add_import(command, action);
  add_reshard(command, action);
  add_average(command, action);
}

}  // namespace tessera
