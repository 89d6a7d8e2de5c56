#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct PackOptions {
  bool document_per_line = false;  // default: one document per file
  // About this part of the bytes, from the end, goes to OUT-valid.bin/.idx (0: none): cut at the
  // document boundary that is nearest, or at a line end if there is one document only.
  double valid_fraction = 0.0;
  bool any_bytes = false;  // pack what is no plain text too, as it is
  bool replace = false;    // replace an earlier pack of the same prefix, as a whole (PackTarget)
};

// What was written to OUT_PREFIX and, held out, to OUT_PREFIX-valid.
struct PackResult {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t valid_documents = 0;
  int64_t valid_tokens = 0;
  std::vector<std::filesystem::path> removed;  // of an earlier pack, without a successor
  std::vector<std::string> lacks;              // what the file system cannot do (try_folder.h)
};

// Writes OUT_PREFIX.bin/.idx in Megatron's layout from text files, one token (u8) per byte; lines
// keep their newline. Streams: memory does not grow with the input. Files appear whole or not at
// all. UserError for a missing, empty or unreadable input, one that is no plain text (UTF-8 without
// NUL bytes, in no other format: text_check.h), one that is given twice while a part is held out,
// files of an earlier pack, and if there is nowhere to cut.
PackResult pack_bytes(const std::vector<std::filesystem::path>& inputs,
                      const std::string& out_prefix, const PackOptions& options);

}  // namespace tessera
