#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/exit_codes.h"
#include "cli/command_line.h"
#include "data/pack.h"

namespace tessera {
namespace {

struct PackArguments {
  std::vector<std::filesystem::path> inputs;
  std::string out_prefix;
  PackOptions options;
};

void print_data_set(const std::string& prefix, int64_t documents, int64_t tokens) {
  std::cout << fmt::format("wrote {}.bin and .idx: {} document{}, {} tokens\n", prefix, documents,
                           documents == 1 ? "" : "s", tokens);
}

int run_pack(const PackArguments& arguments) {
  const PackResult result = pack_bytes(arguments.inputs, arguments.out_prefix, arguments.options);
  print_notes(result.lacks);
  print_data_set(arguments.out_prefix, result.documents, result.tokens);
  if (result.valid_documents > 0) {
    print_data_set(arguments.out_prefix + "-valid", result.valid_documents, result.valid_tokens);
  }
  for (const auto& path : result.removed)
    std::cout << fmt::format("removed {} of the earlier pack\n", path.string());
  return kExitDone;
}

}  // namespace

void add_data_command(CLI::App& app, Action& action) {
  CLI::App& data = add_command(app, "data", "Prepare training data.");
  data.require_subcommand(1);
  CLI::App& command = add_command(
      data, "pack", "Pack text files into Megatron's .bin/.idx pair, one token per byte.");
  const auto arguments = std::make_shared<PackArguments>();
  command.add_option("INPUT", arguments->inputs, "Plain text files, a document each")->required();
  command.add_option("--out", arguments->out_prefix, "Writes PREFIX.bin and PREFIX.idx")
      ->required()
      ->type_name("PREFIX");
  command.add_flag("--per-line", arguments->options.document_per_line,
                   "Each line is a document, newline included");
  command
      .add_option("--valid-fraction", arguments->options.valid_fraction,
                  "About this part, from the end, goes to PREFIX-valid.bin and .idx")
      ->check(CLI::Range(0.0, 1.0));
  command.add_flag("--bytes", arguments->options.any_bytes,
                   "Pack what is no plain UTF-8 text too, byte for byte");
  command.add_flag("--force", arguments->options.replace,
                   "Replace what is at PREFIX and PREFIX-valid, together");
  command.callback([&action, arguments] { action = [arguments] { return run_pack(*arguments); }; });
}

}  // namespace tessera
