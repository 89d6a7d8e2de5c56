#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/exit_codes.h"
#include "checkpoint/store/run_folder.h"
#include "checkpoint/tools/average.h"
#include "checkpoint/tools/reshard.h"
#include "cli/checkpoint_commands.h"
#include "cli/tool_arguments.h"
#include "training/engine/mesh_pieces.h"

namespace tessera {
namespace {

// "2x4x1"
MeshShape parse_mesh(const std::string& text) {
  MeshShape mesh;
  const char *at = text.data(), *const end = at + text.size();
  bool right = true;
  for (int* size : {&mesh.dp_replicate, &mesh.dp_shard, &mesh.tp}) {
    if (size != &mesh.dp_replicate) right = right && at != end && *at++ == 'x';
    const auto [rest, error] = std::from_chars(at, end, *size);
    right = right && error == std::errc() && *size >= 1;
    at = rest;
  }
  if (!right || at != end)
    fail_user("cli",
              "--mesh: {}; the rule is dp_replicate x dp_shard x tp, each from 1, such as 1x4x2",
              text);
  return mesh;
}

struct ReshardArguments : ToolArguments {
  std::string step_dir, out_dir, mesh;
};

int run_reshard(const ReshardArguments& arguments) {
  const MeshShape mesh = parse_mesh(arguments.mesh);
  check_step_folder(arguments.step_dir);
  const auto pieces_of = [&](const Manifest& manifest) -> PiecesOfRank {
    const auto pieces = std::make_shared<MeshPieces>(manifest, mesh);
    return [pieces](int rank) { return pieces->of_rank(rank); };
  };
  print_notes(with_bar("reshard", arguments, [&](const ToolOptions& tool) {
    return reshard_step(arguments.step_dir, arguments.out_dir, mesh, pieces_of, tool);
  }));
  std::cout << "wrote " << arguments.out_dir << "\n";
  return kExitDone;
}

struct AverageArguments : ToolArguments {
  std::vector<std::string> step_dirs;
  std::string out_dir;
};

int run_average(const AverageArguments& arguments) {
  for (const std::string& step_dir : arguments.step_dirs) check_step_folder(step_dir);
  print_notes(with_bar("average", arguments, [&](const ToolOptions& tool) {
    return average_steps({arguments.step_dirs.begin(), arguments.step_dirs.end()},
                         arguments.out_dir, tool);
  }));
  std::cout << "wrote " << arguments.out_dir << "\n";
  return kExitDone;
}

}  // namespace

void add_reshard(CLI::App& parent, Action& action) {
  CLI::App& command =
      add_command(parent, "reshard",
                  "Write a step folder anew as a run on another mesh would have written it. Any "
                  "checkpoint loads on any mesh without: this is for more or fewer files.");
  const auto arguments = std::make_shared<ReshardArguments>();
  command.add_option("STEP_DIR", arguments->step_dir)->required();
  command.add_option("OUT_DIR", arguments->out_dir, "The new step folder")->required();
  command
      .add_option("--mesh", arguments->mesh, "dp_replicate x dp_shard x tp of the new files: 1x4x2")
      ->required();
  add_force(command, *arguments);
  add_threads(command, *arguments);
  command.callback(
      [&action, arguments] { action = [arguments] { return run_reshard(*arguments); }; });
}

void add_average(CLI::App& parent, Action& action) {
  CLI::App& command = add_command(
      parent, "average",
      "Write a step folder with the mean of the weights of two or more, to start from with "
      "checkpoint.init_from or to consolidate.");
  const auto arguments = std::make_shared<AverageArguments>();
  command.add_option("STEP_DIR", arguments->step_dirs, "Two or more step folders of one model")
      ->required();
  command.add_option("--out", arguments->out_dir, "The new step folder")->required();
  add_force(command, *arguments);
  add_threads(command, *arguments);
  command.callback(
      [&action, arguments] { action = [arguments] { return run_average(*arguments); }; });
}

}  // namespace tessera
