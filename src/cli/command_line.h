#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

namespace tessera {

// What a command line asks for: set by the command that was named, run when all of it is parsed.
using Action = std::function<int()>;

// A command with what every command has (--help, --version).
CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description);

// What a command did without or left out: on stdout, "note: ..." in a line each.
void print_notes(const std::vector<std::string>& notes);

// One per file: each adds a command with its options to `app`, which sets `action`.
void add_train_command(CLI::App& app, Action& action);
void add_checkpoint_command(CLI::App& app, Action& action);
void add_data_command(CLI::App& app, Action& action);
void add_config_command(CLI::App& app, Action& action);

// Parses the command line and runs its command. Returns an exit code of base/exit_codes.h: a wrong
// command line is told on stderr, what the command throws comes out.
int run_command_line(int argc, const char* const* argv);

}  // namespace tessera
