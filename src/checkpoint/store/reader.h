#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/format/pieces.h"
#include "checkpoint/format/state_source.h"
#include "checkpoint/store/block_reader.h"
#include "checkpoint/store/stored_checkpoint.h"

namespace tessera {

// Reads a committed checkpoint of any mesh. No MPI, no model, bounded memory. A reader is of one
// thread; several may share a checkpoint.
class CheckpointReader : public StateSource {
 public:
  // Errors as StoredCheckpoint::open().
  explicit CheckpointReader(const std::filesystem::path& step_dir);
  explicit CheckpointReader(std::shared_ptr<const StoredCheckpoint> checkpoint);

  const std::shared_ptr<const StoredCheckpoint>& checkpoint() const { return checkpoint_; }
  const Manifest& manifest() const { return checkpoint_->manifest(); }

  // Fills `piece.data` from whichever stored pieces overlap it; converts the dtype if the stored
  // one differs; UserError if a value is beyond the range of the new one. Checks the XXH3 of each
  // block that it touches, once per reader, while reading: DamagedError that names file and piece.
  void read(const Piece& piece) override;

  // The dtype in which a state of a tensor is stored. UserError if there is no such tensor or
  // state.
  Dtype stored_dtype(const std::string& tensor, const std::string& state) const {
    return checkpoint_->dtype(tensor, state);
  }

  // Gives `sink` a whole tensor in row-major order as `dtype`, in parts of a few MiB, whatever
  // boxes it is stored in; each stored byte is read about once. UserError if values are beyond the
  // range of `dtype`, after `sink` has had them: what it makes of them counts only when stream()
  // has returned.
  void stream(const std::string& tensor, const std::string& state, Dtype dtype,
              const std::function<void(const std::byte* data, int64_t bytes)>& sink);

  // The reading below: what it has opened and read, and a call before each few MiB.
  BlockReader& blocks() { return blocks_; }

 private:
  // Copies what the stored piece and the wanted slice share. `to` is the memory of the wanted
  // slice. Returns how many of the values are beyond the range of `dtype`.
  int64_t copy_shared(const StoredPiece& piece, const BoxSlice& wanted, Dtype dtype, std::byte* to);
  void check_range(const std::string& tensor, const std::string& state, int64_t beyond,
                   int64_t numel, Dtype dtype) const;

  std::shared_ptr<const StoredCheckpoint> checkpoint_;
  BlockReader blocks_;
};

}  // namespace tessera
