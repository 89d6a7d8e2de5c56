#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/store/stored_checkpoint.h"
#include "checkpoint/store/tool_options.h"
#include "safetensors/writer.h"

namespace tessera {

// The tensors of an export, in files as Hugging Face's tools name them: STEM.safetensors, or
// STEM-00001-of-0000N.safetensors with STEM.safetensors.index.json.

inline constexpr const char* kWeightsStem = "model";
// The whole training state (ConsolidateOptions::with_optimizer) has a folder of its own: loaders of
// weights take whatever *.safetensors lies beside config.json.
inline constexpr const char* kTrainingStateFolder = "training_state";
inline constexpr const char* kStateStem = "state";
inline constexpr const char* kTrainingStateFile = "state.json";

// A tensor of a file, and what it is made of.
struct ExportTensor {
  TensorSpec spec;                 // as in the file
  std::string state;               // of our tensors
  std::vector<std::string> parts;  // our tensors, one below the other (joined along dim 0)
  bool transposed = false;         // the file holds the joined matrix as [columns, rows]

  int64_t bytes() const;
};

struct ExportFiles {
  std::filesystem::path folder;
  std::string stem;
  std::vector<ExportTensor> tensors;
};

// Writes the tensors of a checkpoint in files of at most `max_file_bytes` (a larger tensor has one
// to itself), with the index where there are several. Threads share the tensors. Each has some 50
// MiB of buffers, whatever the sizes of tensors.
void write_export_files(const std::shared_ptr<const StoredCheckpoint>& checkpoint,
                        const std::vector<ExportFiles>& exports, int64_t max_file_bytes,
                        const ToolOptions& tool);

// Whether a file of tensors of an export may have this name.
bool is_export_file(std::string_view name, std::string_view stem);
std::string export_index_name(std::string_view stem);

}  // namespace tessera
