#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/format/state_source.h"

namespace tessera {

// Opens a committed checkpoint of any mesh for reading. No MPI, no model, bounded memory.
class CheckpointReader : public StateSource {
 public:
  // Checks manifest, file sizes and header digests, and that the pieces of every state cover every
  // tensor exactly once. DamagedError that names the folder, file and tensor otherwise, also where
  // a file is missing; UserError if the folder is, or if its format version is unknown.
  explicit CheckpointReader(const std::filesystem::path& step_dir);
  ~CheckpointReader() override;

  const Manifest& manifest() const;

  // Fills `piece.data` from whichever stored pieces overlap it; converts the dtype if the stored
  // one differs; UserError if a value is beyond the range of the new one. Checks the XXH3 of each
  // stored piece that it touches, once per reader, while reading.
  void read(const Piece& piece) override;

  // The dtype in which a state of a tensor is stored. Error if there is no such tensor or state.
  Dtype stored_dtype(const std::string& tensor, const std::string& state) const;

  // Gives `sink` a whole tensor in row-major order as `dtype`, in parts of a few MiB, whatever
  // boxes it is stored in; each stored byte is read once. UserError if values are beyond the range
  // of `dtype`. `sink` sees data before that and its checksum are known: what it makes of them
  // counts only when stream() has returned.
  void stream(const std::string& tensor, const std::string& state, Dtype dtype,
              const std::function<void(const std::byte* data, int64_t bytes)>& sink);

  // Reads all data and checks every checksum. DamagedError that names the file and piece.
  void verify();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
