#pragma once

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/xxh3.h"
#include "checkpoint_testing.h"
#include "safetensors/writer.h"

// Checkpoints as older programs wrote them.
namespace tessera::testing {

// The pieces of one file, in the order of their data.
inline std::vector<StoredPiece> pieces_of_file(const StoredCheckpoint& checkpoint, int file) {
  std::vector<StoredPiece> pieces;
  for (const StoredPiece& piece : checkpoint.index().pieces())
    if (piece.file == file) pieces.push_back(piece);
  std::sort(pieces.begin(), pieces.end(),
            [](const StoredPiece& a, const StoredPiece& b) { return a.offset < b.offset; });
  return pieces;
}

// A piece as the header of an old file says it; tests change it.
struct OldPiece {
  std::string key;  // TENSOR/STATE
  BoxSlice slice;
  Dtype dtype = Dtype::kF32;
  std::string data;
};

inline std::vector<OldPiece> old_pieces(const StoredCheckpoint& checkpoint, int file) {
  const std::string bytes = slurp(checkpoint.file(file));
  std::vector<OldPiece> pieces;
  for (const StoredPiece& piece : pieces_of_file(checkpoint, file))
    pieces.push_back(
        {checkpoint.name(piece), checkpoint.index().slice(piece), piece.dtype,
         bytes.substr(static_cast<size_t>(piece.offset), static_cast<size_t>(piece.bytes()))});
  return pieces;
}

// Writes a file of versions 1 and 2 and returns its row of the manifest.
inline nlohmann::json write_old_file(const fs::path& path, const std::vector<OldPiece>& pieces) {
  std::map<std::string, std::string> metadata{{"format", "tessera-rank-file/1"}};
  std::vector<TensorSpec> specs;
  for (const OldPiece& piece : pieces) {
    const nlohmann::json place = {{"offset", piece.slice.box.offset},
                                  {"shape", piece.slice.box.shape},
                                  {"interval", {piece.slice.begin, piece.slice.end}},
                                  {"xxh3", xxh3_hex(piece.data.data(), piece.data.size())}};
    metadata[piece.key] = place.dump();
    specs.push_back({piece.key, piece.dtype, {piece.slice.numel()}});
  }
  SafetensorsWriter writer(path, specs, metadata);
  for (const OldPiece& piece : pieces) writer.append(piece.data.data(), std::ssize(piece.data));
  writer.finish();
  return {{"name", path.filename().string()},
          {"size", writer.file_size()},
          {"header_xxh3", writer.header_xxh3()}};
}

// Makes a checkpoint of this program one of format version 1 or 2. `edit` sees the pieces of each
// file before they are written.
inline void make_old(
    const fs::path& step_dir, int version,
    const std::function<void(int file, std::vector<OldPiece>& pieces)>& edit = [](int, auto&) {}) {
  const auto checkpoint = StoredCheckpoint::open(step_dir);
  nlohmann::json root = nlohmann::json::parse(slurp(step_dir / "manifest.json"));
  root["files"] = nlohmann::json::array();
  for (size_t i = 0; i < checkpoint->manifest().files.size(); ++i) {
    const int file = static_cast<int>(i);
    std::vector<OldPiece> pieces = old_pieces(*checkpoint, file);
    edit(file, pieces);
    root["files"].push_back(write_old_file(checkpoint->file(file), pieces));
  }
  fs::remove(step_dir / checkpoint->manifest().index->name);
  root["version"] = version;
  root.erase("index");
  root.erase("xxh3");
  if (version == 1) root.erase("training");
  const std::string text = root.dump();
  root["xxh3"] = xxh3_hex(text.data(), text.size());
  spit(step_dir / "manifest.json", root.dump());
}

}  // namespace tessera::testing
