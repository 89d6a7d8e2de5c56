#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

namespace tessera {

// What a command line asks for: set by the command that was named, run when all of it is parsed.
using Action = std::function<int()>;

// Adds a command to `parent`, with the options that every command has (--help, --version).
CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description);

// Prints what a command did without or left out to stdout, as lines "note: ...".
void print_notes(const std::vector<std::string>& notes);

// Each adds one command with its options to `app`; the command sets `action` when it is named. Each
// has a file of its own (train.cpp, checkpoint.cpp, ...).
void add_train_command(CLI::App& app, Action& action);
void add_checkpoint_command(CLI::App& app, Action& action);
void add_data_command(CLI::App& app, Action& action);
void add_config_command(CLI::App& app, Action& action);
void add_launch_command(CLI::App& app, Action& action);
void add_doctor_command(CLI::App& app, Action& action);

// Parses the command line and runs its command. Returns an exit code of base/exit_codes.h.
// UserError for a wrong command line; exceptions of the command pass through.
int run_command_line(int argc, const char* const* argv);

}  // namespace tessera
