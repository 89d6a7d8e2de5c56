#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/exit_codes.h"
#include "checkpoint/store/inspect.h"
#include "checkpoint/store/run_folder.h"
#include "checkpoint/tools/diff.h"
#include "checkpoint/tools/list.h"
#include "checkpoint/tools/verify.h"
#include "cli/checkpoint_commands.h"
#include "cli/tool_arguments.h"

namespace tessera {
namespace {

struct LookArguments : ToolArguments {
  std::string path, other;
  bool json = false;
};

void add_json(CLI::App& command, LookArguments& arguments) {
  command.add_flag("--json", arguments.json, "Print one JSON object");
}

void print_json(const nlohmann::ordered_json& value) {
  // A path that is not UTF-8 is printed with replacement characters rather than not at all.
  std::cout << value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

int run_list(const LookArguments& arguments) {
  const StepList list = list_steps(arguments.path);
  for (const std::string& note : list.notes) std::cerr << "note: " << note << "\n";
  if (arguments.json)
    print_json(steps_json(list));
  else
    print_steps(list, std::cout);
  return kExitDone;
}

int run_verify(const LookArguments& arguments) {
  check_step_folder(arguments.path);
  const std::vector<std::string> damage =
      with_bar("verify", arguments,
               [&](const ToolOptions& tool) { return verify_step(arguments.path, tool); });
  if (damage.empty()) {
    std::cout << arguments.path << ": every checksum is right\n";
    return kExitDone;
  }
  for (const std::string& line : damage) std::cerr << "error: " << line << "\n";
  return kExitUserError;
}

// 1 says that the two differ, so whatever fails, even what is no user's fault, is 2.
int run_diff(const LookArguments& arguments) {
  try {
    for (const std::string& path : {arguments.path, arguments.other}) check_step_folder(path);
    const CheckpointDifference difference = with_bar(
        "diff", arguments,
        [&](const ToolOptions& tool) { return diff_steps(arguments.path, arguments.other, tool); });
    if (arguments.json)
      print_json(difference_json(difference));
    else
      print_difference(difference, std::cout);
    return difference.equal() ? kExitDone : kExitDiffer;
  } catch (const Error& error) {
    throw UserError(error.what());
  }
}

}  // namespace

void add_list(CLI::App& parent, Action& action) {
  CLI::App& command =
      add_command(parent, "list",
                  "List the checkpoints of a run: step, time, size, and whether each is whole.");
  const auto arguments = std::make_shared<LookArguments>();
  command.add_option("RUN", arguments->path, "The run folder (run.dir)")->required();
  add_json(command, *arguments);
  command.callback([&action, arguments] { action = [arguments] { return run_list(*arguments); }; });
}

void add_inspect(CLI::App& parent, Action& action) {
  CLI::App& command = add_command(parent, "inspect", "Print what a step folder holds.");
  const auto arguments = std::make_shared<LookArguments>();
  command.add_option("STEP_DIR", arguments->path)->required();
  add_json(command, *arguments);
  command.callback([&action, arguments] {
    action = [arguments] {
      check_step_folder(arguments->path);
      if (arguments->json)
        print_json(inspect_json(arguments->path));
      else
        inspect(arguments->path, std::cout);
      return kExitDone;
    };
  });
}

void add_verify(CLI::App& parent, Action& action) {
  CLI::App& command = add_command(
      parent, "verify",
      "Read a whole step folder and check every checksum. Exit code 2 where it is damaged.");
  const auto arguments = std::make_shared<LookArguments>();
  command.add_option("STEP_DIR", arguments->path)->required();
  add_threads(command, *arguments);
  command.callback(
      [&action, arguments] { action = [arguments] { return run_verify(*arguments); }; });
}

void add_diff(CLI::App& parent, Action& action) {
  CLI::App& command = add_command(
      parent, "diff",
      "Compare the tensors of two step folders, of whatever meshes. Exit code 0 where they are "
      "equal, 1 where they differ, 2 on errors.");
  const auto arguments = std::make_shared<LookArguments>();
  command.add_option("A", arguments->path, "A step folder")->required();
  command.add_option("B", arguments->other, "Another one")->required();
  add_json(command, *arguments);
  add_threads(command, *arguments);
  command.callback([&action, arguments] { action = [arguments] { return run_diff(*arguments); }; });
}

}  // namespace tessera
