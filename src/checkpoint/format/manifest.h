#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/pieces.h"

namespace tessera {

// Version 3: pieces and their digests are in an index of their own. Versions 1 (no `training`, each
// tensor has all states) and 2 are read as well: there each file's header says where its pieces
// belong.
inline constexpr int kCheckpointFormatVersion = 3;

struct ManifestFile {
  std::string name;         // a plain name inside the folder, nothing else
  int64_t size = 0;         // bytes
  std::string header_xxh3;  // XXH3-64 of the first 8 + header bytes, 16 hex digits
};

// The file that says which pieces are in which file (piece_index.h).
struct ManifestIndex {
  std::string name;  // a plain name inside the folder
  int64_t size = 0;  // bytes
  std::string xxh3;  // XXH3-64 of all of them, 16 hex digits
};

// manifest.json: small at any scale. Which pieces exist is in the index that it names.
struct Manifest {
  int64_t step = 0;
  int64_t samples = 0;  // global sample counter: samples consumed so far
  int64_t tokens = 0;   // tokens consumed so far
  uint64_t seed = 0;
  std::vector<std::string>
      states;  // e.g. {"param", "exp_avg", "exp_avg_sq"}; {"param"} after import
  std::vector<TensorInfo> tensors;  // every tensor, in model order
  nlohmann::json model;             // Hugging Face's config.json of the model
  nlohmann::json config;            // resolved training configuration; null after import
  nlohmann::json data;              // array of TokenStream::fingerprints(); null if unknown
  nlohmann::json training;          // the loop's own state besides the above; null before version 2
  nlohmann::json run;   // where the run began and what was changed on the way; null if unknown
  nlohmann::json mesh;  // informative only: {"dp_replicate": 1, "dp_shard": 2, "tp": 2}
  std::string writer;   // "tessera 0.1.0"
  std::vector<ManifestFile> files;
  std::optional<ManifestIndex> index;  // nullopt in versions 1 and 2
  // The digest of all the above, wherever the folder lies: the checkpoint's identity. Filled by
  // read_manifest().
  std::string id;

  // The states that a tensor of the table has, in the order of `states`.
  const std::vector<std::string>& states_of(const TensorInfo& tensor) const {
    return tensor.states.empty() ? states : tensor.states;
  }
};

// Reads STEP_DIR/manifest.json; DamagedError that names the file and the field for anything
// malformed and for file names that are not plain names; UserError for a format version that this
// program does not know, and if there is no such file.
Manifest read_manifest(const std::filesystem::path& step_dir);
// The same in two steps, for a text that has travelled. `file` names it in messages.
std::string read_manifest_text(const std::filesystem::path& step_dir);
Manifest parse_manifest(const std::string& text, const std::string& file);

// Writes manifest.json (temporary name, fsync, rename), with a digest of its contents in it. Its
// version is kCheckpointFormatVersion, so `manifest` has an index.
void write_manifest(const std::filesystem::path& step_dir, const Manifest& manifest);

// UserError that lists which tensors of the model the checkpoint lacks, has besides, or has in
// another shape (five names of each kind). The order of tensors does not matter.
void check_tensors(const Manifest& manifest, const std::vector<TensorInfo>& expected);

}  // namespace tessera
