#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/files/files.h"
#include "checkpoint/huggingface/consolidate.h"
#include "checkpoint/huggingface/import.h"
#include "checkpoint/store/run_folder.h"
#include "cli/checkpoint_commands.h"
#include "cli/tool_arguments.h"
#include "config/rules/check.h"
#include "models/registry.h"

namespace tessera {
namespace {

struct ConsolidateArguments : ToolArguments {
  std::string step_dir;
  std::string out_dir;
  std::string dtype;
  uint64_t max_shard_bytes = static_cast<uint64_t>(ConsolidateOptions{}.max_shard_bytes);
  bool with_optimizer = false;
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
  options.with_optimizer = arguments.with_optimizer;
  check_step_folder(arguments.step_dir);
  print_notes(with_bar("consolidate", arguments, [&](const ToolOptions& tool) {
    options.tool = tool;
    return consolidate(arguments.step_dir, arguments.out_dir, options);
  }));
  std::cout << "wrote " << arguments.out_dir << "\n";
  return kExitDone;
}

// A folder that training would refuse is refused before its weights are copied.
HfModel recognize(const nlohmann::json& config) {
  const AnyModel model = model_from_hf(config, "config.json");
  check_model(model);
  return {model->hf_tensors(), model_tensors(*model)};
}

struct ImportArguments : ToolArguments {
  std::string hf_dir, step_dir;
};

int run_import(const ImportArguments& arguments) {
  const std::filesystem::path from = arguments.hf_dir;
  if (is_file(from / "manifest.json") || newest_step_in(from))
    fail_user("checkpoint",
              "{} holds checkpoints of Tessera, not a Hugging Face model; a run starts from a "
              "step folder with checkpoint.init_from, without an import",
              from.string());
  print_notes(with_bar("import", arguments, [&](const ToolOptions& tool) {
    return import_hugging_face(from, arguments.step_dir, recognize, tool);
  }));
  std::cout << "wrote " << arguments.step_dir << "\n";
  return kExitDone;
}

}  // namespace

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
  command.add_flag("--with-optimizer", arguments->with_optimizer,
                   "Write the whole training state too, as safetensors in OUT_DIR/training_state");
  add_force(command, *arguments);
  add_threads(command, *arguments);
  command.callback(
      [&action, arguments] { action = [arguments] { return run_consolidate(*arguments); }; });
}

void add_import(CLI::App& parent, Action& action) {
  CLI::App& command =
      add_command(parent, "import",
                  "Turn a Hugging Face model folder into a step folder; a run starts from it with "
                  "checkpoint.init_from.");
  const auto arguments = std::make_shared<ImportArguments>();
  command.add_option("HF_DIR", arguments->hf_dir, "Holds config.json and *.safetensors")
      ->required();
  command.add_option("STEP_DIR", arguments->step_dir, "The new step folder")->required();
  add_force(command, *arguments);
  add_threads(command, *arguments);
  command.callback(
      [&action, arguments] { action = [arguments] { return run_import(*arguments); }; });
}

}  // namespace tessera
