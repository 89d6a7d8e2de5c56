#include "checkpoint/hf_files.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "base/error.h"

namespace tessera {
namespace {

constexpr const char* kCarried[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tokenizer.model.v3",
    "tekken.json",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    kHfImageProcessorFile,
};
// Of these, those that turn text into ids.
constexpr const char* kTokenizers[] = {"tokenizer.json", "tokenizer.model", "tokenizer.model.v3",
                                       "tekken.json",    "spiece.model",    "vocab.json",
                                       "vocab.txt"};
constexpr const char* kTemplates = "additional_chat_templates";  // a folder

void carry_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::create_directories(to.parent_path(), error);
  if (!error)
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (error)
    fail("checkpoint", "cannot copy {} to {}: {}", from.string(), to.string(), error.message());
}

}  // namespace

std::optional<std::filesystem::path> find_hf_files(const std::filesystem::path& step_dir) {
  const std::filesystem::path whole = std::filesystem::absolute(step_dir).lexically_normal();
  const std::filesystem::path step = whole.has_filename() ? whole : whole.parent_path();
  if (std::filesystem::is_directory(step / kHfFilesFolder)) return step / kHfFilesFolder;
  // RUN/checkpoints/step-00000100; a step folder elsewhere in RUN is no checkpoint of the run.
  if (step.parent_path().filename() != "checkpoints") return std::nullopt;
  const std::filesystem::path of_run = step.parent_path().parent_path() / kHfFilesFolder;
  if (std::filesystem::is_directory(of_run)) return of_run;
  return std::nullopt;
}

bool has_tokenizer(const std::filesystem::path& folder) {
  std::error_code error;
  return std::any_of(std::begin(kTokenizers), std::end(kTokenizers), [&](const char* name) {
    return std::filesystem::exists(folder / name, error);
  });
}

void copy_hf_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : kCarried)
    if (std::filesystem::is_regular_file(from / name)) carry_file(from / name, to / name);
  if (!std::filesystem::is_directory(from / kTemplates)) return;
  for (const auto& entry : std::filesystem::directory_iterator(from / kTemplates))
    if (entry.is_regular_file())
      carry_file(entry.path(), to / kTemplates / entry.path().filename());
}

void replace_hf_files(const std::optional<std::filesystem::path>& from,
                      const std::filesystem::path& to) {
  std::error_code error;
  if (from && std::filesystem::equivalent(*from, to, error)) return;
  std::filesystem::remove_all(to, error);
  if (error) fail("checkpoint", "cannot remove {}: {}", to.string(), error.message());
  if (from) copy_hf_files(*from, to);
}

}  // namespace tessera
