#include "checkpoint/hf_files.h"

#include <system_error>

#include "base/error.h"

namespace tessera {
namespace {

constexpr const char* kCarried[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
};

}  // namespace

std::optional<std::filesystem::path> find_hf_files(const std::filesystem::path& step_dir) {
  const std::filesystem::path whole = std::filesystem::absolute(step_dir).lexically_normal();
  const std::filesystem::path step = whole.has_filename() ? whole : whole.parent_path();
  // RUN/checkpoints/step-00000100
  for (const auto& folder :
       {step / kHfFilesFolder, step.parent_path().parent_path() / kHfFilesFolder})
    if (std::filesystem::is_directory(folder)) return folder;
  return std::nullopt;
}

void copy_hf_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : kCarried) {
    if (!std::filesystem::is_regular_file(from / name)) continue;
    std::error_code error;
    std::filesystem::create_directories(to, error);
    if (!error)
      std::filesystem::copy_file(from / name, to / name,
                                 std::filesystem::copy_options::skip_existing, error);
    if (error)
      fail("checkpoint", "cannot copy {} to {}: {}", (from / name).string(), to.string(),
           error.message());
  }
}

}  // namespace tessera
