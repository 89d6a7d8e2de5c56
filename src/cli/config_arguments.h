#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/load.h"
#include "config/rules/check.h"
#include "config/rules/check_inject.h"
#include "config/rules/resolve_mesh.h"

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

  // Reads the configuration and checks all rules between keys; with `ranks`, also whether the mesh
  // fits that number of ranks. What is wrong goes to `mistakes`.
  LoadedConfig read(Mistakes& mistakes, std::optional<int> ranks = std::nullopt) const {
    LoadedConfig loaded = read_config(file, overrides, mistakes);
    PlacedReport report(loaded.places, mistakes);
    check_config(loaded.config, report);
    if (ranks && !loaded.places.refused("model")) resolve_mesh(loaded.config, *ranks, report);
    if (ranks) check_inject(loaded.config, *ranks, report);
    return loaded;
  }

  // The same; UserError with all that is wrong.
  Config load(std::optional<int> ranks = std::nullopt) const {
    Mistakes mistakes;
    LoadedConfig loaded = read(mistakes, ranks);
    mistakes.throw_if_any();
    return std::move(loaded.config);
  }
};

}  // namespace tessera
