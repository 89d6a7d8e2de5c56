#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/files/files.h"
#include "checkpoint/huggingface/consolidate.h"
#include "checkpoint/huggingface/import.h"
#include "checkpoint/store/inspect.h"
#include "checkpoint/store/run_folder.h"
#include "cli/command_line.h"
#include "config/rules/check.h"
#include "models/registry.h"

namespace tessera {
namespace {

struct ConsolidateArguments {
  std::string step_dir;
  std::string out_dir;
  std::string dtype;
  uint64_t max_shard_bytes = static_cast<uint64_t>(ConsolidateOptions{}.max_shard_bytes);
};

int run_consolidate(const ConsolidateArguments& arguments) {
  ConsolidateOptions options;
  if (arguments.dtype == "fp32") options.dtype = Dtype::kF32;
  if (arguments.dtype == "bf16") options.dtype = Dtype::kBF16;
  if (arguments.dtype == "fp16") options.dtype = Dtype::kF16;
  if (arguments.max_shard_bytes == 0 || arguments.max_shard_bytes > (uint64_t{1} << 62)) {
    fail_user("cli", "--max-shard-size: {} bytes; must be from 1 byte to 4 EiB",
              arguments.max_shard_bytes);
  }
  options.max_shard_bytes = static_cast<int64_t>(arguments.max_shard_bytes);
  options.tensors = [](const nlohmann::json& config) {
    return model_from_hf(config, "the checkpoint's model")->hf_tensors();
  };
  check_step_folder(arguments.step_dir);
  print_notes(consolidate(arguments.step_dir, arguments.out_dir, options));
  std::cout << "wrote " << arguments.out_dir << "\n";
  return kExitDone;
}

void add_consolidate(CLI::App& parent, Action& action) {
  CLI::App& command = add_command(
      parent, "consolidate", "Write the weights of a step folder as a Hugging Face model folder.");
  const auto arguments = std::make_shared<ConsolidateArguments>();
  command.add_option("STEP_DIR", arguments->step_dir, "Such as runs/x/checkpoints/step-00000100")
      ->required();
  command.add_option("OUT_DIR", arguments->out_dir, "The new folder; must not exist or be empty")
      ->required();
  command
      .add_option("--dtype", arguments->dtype, "Element type of the weights; default: as stored")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command
      .add_option("--max-shard-size", arguments->max_shard_bytes,
                  "Largest file, in bytes or with a unit: 500MB, 5GB (powers of 1000), 4GiB")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("SIZE")
      ->default_str("5GiB");
  command.callback(
      [&action, arguments] { action = [arguments] { return run_consolidate(*arguments); }; });
}

void add_inspect(CLI::App& parent, Action& action) {
  struct Arguments {
    std::string step_dir;
    bool verify = false;
  };
  CLI::App& command = add_command(parent, "inspect", "Print what a step folder holds.");
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("STEP_DIR", arguments->step_dir)->required();
  command.add_flag("--verify", arguments->verify, "Read all data and check every checksum");
  command.callback([&action, arguments] {
    action = [arguments] {
      check_step_folder(arguments->step_dir);
      inspect(arguments->step_dir, arguments->verify, std::cout);
      return kExitDone;
    };
  });
}

// A folder that training would refuse is refused before its weights are copied.
HfModel recognize(const nlohmann::json& config) {
  const AnyModel model = model_from_hf(config, "config.json");
  check_model(model);
  return {model->hf_tensors(), model_tensors(*model)};
}

void add_import(CLI::App& parent, Action& action) {
  struct Arguments {
    std::string hf_dir;
    std::string step_dir;
  };
  CLI::App& command =
      add_command(parent, "import",
                  "Turn a Hugging Face model folder into a step folder. A run needs no import: "
                  "checkpoint.init_from takes either.");
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("HF_DIR", arguments->hf_dir, "Holds config.json and *.safetensors")
      ->required();
  command.add_option("STEP_DIR", arguments->step_dir, "The new step folder")->required();
  command.callback([&action, arguments] {
    action = [arguments] {
      const std::filesystem::path from = arguments->hf_dir;
      if (is_file(from / "manifest.json") || newest_step_in(from))
        fail_user("checkpoint",
                  "{} holds checkpoints of Tessera, not a Hugging Face model; a run starts from a "
                  "step folder with checkpoint.init_from, without an import",
                  from.string());
      print_notes(import_hugging_face(from, arguments->step_dir, recognize));
      std::cout << "wrote " << arguments->step_dir << "\n";
      return kExitDone;
    };
  });
}

}  // namespace

void add_checkpoint_command(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "checkpoint", "Convert and inspect checkpoints.");
  command.require_subcommand(1);
  add_consolidate(command, action);
  add_inspect(command, action);
  add_import(command, action);
}

}  // namespace tessera
