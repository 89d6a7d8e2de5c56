#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace tessera {

// The files of a Hugging Face folder, besides the weights and config.json, that a trained model
// needs as well: the tokenizer, generation_config.json, chat templates, processors, and the code
// (*.py) that tokenizers and processors may have. An import puts these files into the step folder,
// a run that starts there into its run folder, and an export beside the weights.

// The folder that holds such files for a step folder: STEP_DIR/hf_files, else RUN/hf_files of the
// run that it lies in. nullopt: there is neither.
std::optional<std::filesystem::path> find_hf_files(const std::filesystem::path& step_dir);

inline constexpr const char* kHfFilesFolder = "hf_files";

// Says how images become a model's input.
inline constexpr const char* kHfImageProcessorFile = "preprocessor_config.json";

// Whether a folder of such files holds a tokenizer.
bool has_tokenizer(const std::filesystem::path& folder);

// The names of the files of this kind that a folder holds, relative to it.
std::vector<std::filesystem::path> carried_names(const std::filesystem::path& folder);

// Copies the files of this kind from `from` into `to`, over files of the same names. `to` is made
// if there are any to copy.
void copy_hf_files(const std::filesystem::path& from, const std::filesystem::path& to);

// Throws, as File::open() does, if one of the files that copy_hf_files() would copy cannot be
// opened.
void check_hf_files(const std::filesystem::path& from);

// Whether a config.json names Python classes that lie beside it or on a hub.
bool has_own_code(const nlohmann::json& config);

// Takes out of a config.json the references to files that `carried`, the folder of such files
// (nullopt: there is none), does not hold: Python classes whose module is missing, and
// transformers_weights, since an export names its file of weights otherwise.
void drop_missing_files(nlohmann::json& config,
                        const std::optional<std::filesystem::path>& carried);

// Replaces the folder `to` by the files of this kind that `from` holds. If there are none (or
// `from` is nullopt), `to` is removed.
void replace_hf_files(const std::optional<std::filesystem::path>& from,
                      const std::filesystem::path& to);

}  // namespace tessera
