#pragma once

#include "cli/command_line.h"

namespace tessera {

// The commands of `tessera checkpoint`. Each adds one to `parent`.

// To and from Hugging Face (checkpoint_convert.cpp).
void add_consolidate(CLI::App& parent, Action& action);
void add_import(CLI::App& parent, Action& action);

// What is there (checkpoint_look.cpp).
void add_list(CLI::App& parent, Action& action);
void add_inspect(CLI::App& parent, Action& action);
void add_verify(CLI::App& parent, Action& action);
void add_diff(CLI::App& parent, Action& action);

// Step folders from step folders (checkpoint_make.cpp).
void add_reshard(CLI::App& parent, Action& action);
void add_average(CLI::App& parent, Action& action);

}  // namespace tessera
