#pragma once

#include <CLI/App.hpp>

#include "base/process/share_out.h"
#include "checkpoint/store/tool_options.h"
#include "cli/progress_bar.h"

namespace tessera {

// The options that the tools on checkpoints have in common.
struct ToolArguments {
  int threads = usable_cores();
  bool force = false;

  // `bar` sees the progress, and outlives the options.
  ToolOptions options(ProgressBar& bar) const { return {threads, force, bar.show()}; }
};

// Runs a tool with a progress bar, which is gone when the tool's result is there.
template <typename Tool>
auto with_bar(const char* what, const ToolArguments& arguments, Tool tool) {
  ProgressBar bar(what);
  return tool(arguments.options(bar));
}

// Each binds an option of `command` to `arguments`, which outlive it.
void add_threads(CLI::App& command, ToolArguments& arguments);
void add_force(CLI::App& command, ToolArguments& arguments);

}  // namespace tessera
