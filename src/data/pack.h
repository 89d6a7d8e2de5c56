#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct PackOptions {
  bool document_per_line = false;   // default: one document per file
  double valid_fraction = 0.0;      // last part of the bytes goes to OUT-valid.bin/.idx (0: none)
};

struct PackResult {
  int64_t documents = 0;
  int64_t tokens = 0;
};

// Writes OUT_PREFIX.bin/.idx in Megatron's layout from text files, one token (u8) per byte; lines keep
// their newline. Streams: memory does not grow with the input. Files appear whole or not at all.
// UserError for a missing, empty or unreadable input, and if nothing is left to write.
PackResult pack_bytes(const std::vector<std::filesystem::path>& inputs, const std::string& out_prefix,
                      const PackOptions& options);

}  // namespace tessera
