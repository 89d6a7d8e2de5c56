#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

namespace tessera {

// What a Hugging Face folder holds beside the weights and config.json and what a trained model
// needs as well: the tokenizer, generation_config.json, chat templates, processors, and the code
// (*.py) that tokenizers and processors may have. An import puts these files into the step folder,
// a run that starts there into its run folder, and an export beside the weights.

// The folder of such files of a step folder: its own, or that of the run that wrote it.
std::optional<std::filesystem::path> find_hf_files(const std::filesystem::path& step_dir);

inline constexpr const char* kHfFilesFolder = "hf_files";

// Says how images become a model's input.
inline constexpr const char* kHfImageProcessorFile = "preprocessor_config.json";

// Whether a folder of such files holds a tokenizer.
bool has_tokenizer(const std::filesystem::path& folder);

// Copies those of the files that `from` holds into `to`, which is made if there are any, over those
// that are there.
void copy_hf_files(const std::filesystem::path& from, const std::filesystem::path& to);

// Error if one of them cannot be opened.
void check_hf_files(const std::filesystem::path& from);

// Whether a config.json names Python classes that lie beside it or on a hub.
bool has_own_code(const nlohmann::json& config);

// Takes out of a config.json what names files that do not come with `carried` (null: none does):
// classes whose module is not there, and a file of weights by another name than an export has.
void drop_missing_files(nlohmann::json& config,
                        const std::optional<std::filesystem::path>& carried);

// Makes `to` hold those of `from` and no others; without any, `to` is removed.
void replace_hf_files(const std::optional<std::filesystem::path>& from,
                      const std::filesystem::path& to);

}  // namespace tessera
