#include "cli/tool_arguments.h"

#include <CLI/CLI.hpp>

#include "base/process/omp_num_threads.h"

namespace tessera {

void add_threads(CLI::App& command, ToolArguments& arguments) {
  command
      .add_option("--threads", arguments.threads,
                  "Threads that read and write; the result does not depend on them")
      ->check(CLI::Range(1, kMostThreads))
      ->default_str("all cores");
}

void add_force(CLI::App& command, ToolArguments& arguments) {
  command.add_flag("--force", arguments.force,
                   "Replace an existing output folder that the same command wrote");
}

}  // namespace tessera
