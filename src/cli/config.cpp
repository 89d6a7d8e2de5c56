#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/exit_codes.h"
#include "cli/command_line.h"
#include "cli/config_arguments.h"
#include "cli/config_check.h"
#include "config/document.h"
#include "config/save.h"

namespace tessera {
namespace {

void add_check(CLI::App& parent, Action& action) {
  struct Arguments {
    ConfigArguments config;
    ConfigCheckOptions options;
    uint64_t device_memory = 0;
    bool no_data = false;
  };
  CLI::App& command = add_command(
      parent, "check",
      "Read and check a configuration and the files that it names, and report all that is wrong. "
      "Needs no GPU and allocates no model.");
  const auto arguments = std::make_shared<Arguments>();
  arguments->config.add_to(command);
  const auto add_count = [&](const char* name, std::optional<int>& value, const char* what) {
    command.add_option(name, value, what)->check(CLI::Range(1, 1 << 30))->type_name("N");
  };
  add_count("--ranks", arguments->options.ranks,
            "Also check the mesh for this many ranks, and say what memory each would take");
  add_count("--ranks-per-node", arguments->options.ranks_per_node,
            "Also check that tp groups stay within nodes of this many ranks");
  CLI::Option* memory =
      command
          .add_option("--device-memory", arguments->device_memory,
                      "Also check that the states of a rank fit this much: 80GB (powers of 1000), "
                      "80GiB; needs --ranks")
          ->transform(CLI::AsSizeValue(true))
          ->type_name("SIZE");
  command.add_flag("--no-data", arguments->no_data,
                   "Do not look at data and checkpoints: they are on another machine");
  command.callback([&action, arguments, memory] {
    action = [arguments, given = memory->count() > 0] {
      ConfigCheckOptions& options = arguments->options;
      options.data = !arguments->no_data;
      if (given) {
        if (arguments->device_memory == 0 || arguments->device_memory > (uint64_t{1} << 62))
          fail_user("cli", "--device-memory: {} bytes; must be from 1 byte to 4 EiB",
                    arguments->device_memory);
        options.device_memory = static_cast<int64_t>(arguments->device_memory);
      }
      check_configuration(arguments->config, options, std::cout);
      return kExitDone;
    };
  });
}

void add_show(CLI::App& parent, Action& action) {
  CLI::App& command =
      add_command(parent, "show", "Print every key with the value that a run would use.");
  const auto arguments = std::make_shared<ConfigArguments>();
  arguments->add_to(command);
  command.callback([&action, arguments] {
    action = [arguments] {
      std::cout << to_yaml(arguments->load());
      return kExitDone;
    };
  });
}

void add_keys(CLI::App& parent, Action& action) {
  CLI::App& command = add_command(parent, "keys", "Print every key, its values and its meaning.");
  const auto markdown = std::make_shared<bool>(false);
  command.add_flag("--markdown", *markdown, "As the tables of docs/configuration.md");
  command.callback([&action, markdown] {
    action = [markdown] {
      std::cout << (*markdown ? keys_markdown() : keys_text());
      return kExitDone;
    };
  });
}

}  // namespace

void add_config_command(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "config", "Check and print configurations.");
  command.require_subcommand(1);
  add_check(command, action);
  add_show(command, action);
  add_keys(command, action);
}

}  // namespace tessera
