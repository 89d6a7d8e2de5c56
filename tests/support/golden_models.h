#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

#include "support/folders.h"

namespace tessera {

// A tiny model of tests/golden: a folder with config.json and the file of its weights.
struct GoldenModel {
  const char* type;
  const char* folder;
  const char* weights = "model.safetensors";  // by the names of its Hugging Face files

  std::filesystem::path path() const {
    return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden" / folder;
  }
};

// The language models, of golden/make_models.py: folders of tests/golden/models.
inline constexpr const char* kGoldenLanguageModels[] = {
    "llama", "llama3-tied", "llama-bias", "mistral", "qwen2", "qwen3", "phi3", "gpt2"};

// Those that transformers has a class for.
inline constexpr GoldenModel kGoldenHfModels[] = {{"llama", "models/llama"},
                                                  {"llama", "models/llama3-tied"},
                                                  {"llama", "models/llama-bias"},
                                                  {"mistral", "models/mistral"},
                                                  {"qwen2", "models/qwen2"},
                                                  {"qwen3", "models/qwen3"},
                                                  {"phi3", "models/phi3"},
                                                  {"gpt2", "models/gpt2"},
                                                  {"vit", "data/vit", "weights.safetensors"}};
inline constexpr GoldenModel kGoldenTransformer = {"transformer", "data/transformer",
                                                   "files.safetensors"};

// What gtest takes as the name of a test with one of these as its parameter.
inline std::string golden_test_name(std::string folder) {
  std::erase_if(folder, [](char c) { return c == '-' || c == '/'; });
  return folder;
}

}  // namespace tessera
