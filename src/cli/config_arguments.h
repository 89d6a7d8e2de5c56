#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "config/load.h"

namespace tessera {

// CONFIG and --set, as every command that reads a configuration takes them.
struct ConfigArguments {
  std::string file;
  std::vector<std::string> overrides;

  void add_to(CLI::App& command) {
    command.add_option("CONFIG", file, "The configuration (docs/configuration.md)")->required();
    command
        .add_option("--set", overrides,
                    "Override a key of CONFIG: --set training.steps=100; as often as needed")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
  }

  // Reads and checks; UserError for anything wrong.
  Config load() const {
    Config config = load_config(file, overrides);
    check_config(config);
    return config;
  }
};

}  // namespace tessera
