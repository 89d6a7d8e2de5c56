#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/exit_codes.h"
#include "cli/command_line.h"
#include "cli/config_arguments.h"
#include "config/document.h"

namespace tessera {
namespace {

void add_check(CLI::App& parent, Action& action) {
  struct Arguments {
    ConfigArguments config;
    int ranks = 0;  // 0: not given
  };
  CLI::App& command = add_command(parent, "check", "Read and check a configuration.");
  const auto arguments = std::make_shared<Arguments>();
  arguments->config.add_to(command);
  command.add_option("--ranks", arguments->ranks, "Also check the mesh for this many ranks")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command.callback([&action, arguments] {
    action = [arguments] {
      const Config config = arguments->config.load();
      std::string mesh_text;
      if (arguments->ranks > 0) {
        const MeshShape mesh = resolve_mesh(config, arguments->ranks);
        mesh_text = fmt::format(", dp_replicate {} x dp_shard {} x tp {}", mesh.dp_replicate,
                                mesh.dp_shard, mesh.tp);
      }
      std::cout << arguments->config.file << ": ok" << mesh_text << "\n";
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
