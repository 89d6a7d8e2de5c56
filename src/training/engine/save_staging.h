#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "checkpoint/store/saver.h"
#include "config/config.h"
#include "parallel/device/device.h"
#include "parallel/memory_ledger.h"

namespace tessera {

// Whether a run saves beside training: asked for by checkpoint.async, and there are saves that
// training goes on after.
bool saves_beside(const CheckpointSection& checkpoint);

// The bytes of staging memory that the configuration asks for, where a rank writes `own_bytes` in a
// save, and what they count as. checkpoint.staging_mib: auto is all that is written, but 256 MiB
// where the optimizer's moments lie on a disk, since there they are meant to take no memory.
int64_t save_staging_bytes(const Config& config, int64_t own_bytes);
MemoryClass save_staging_class(bool on_gpu);

// Host memory that states are copied into on their way to a checkpoint, so that training goes on
// while they are written. For a GPU it is pinned, and the copies run on a stream of their own.
class SaveStaging {
 public:
  // Of save_staging_bytes(), and with checkpoint.staging_mib: auto not more than this rank's part
  // of half the memory that the host has left. Collective (ranks count who shares the host).
  SaveStaging(const Config& config, const Device& device, int64_t own_bytes, Communicator& world);

  CheckpointSaver::Staging staging() const;
  int64_t bytes() const { return memory_.numel(); }
  // Empty, or a line for the user: the memory is less than a save needs.
  const std::string& note() const { return note_; }
  void add_to(MemoryLedger& ledger) const;

 private:
  bool beside_;
  Device device_;
  at::Tensor memory_;  // bytes
  std::string note_;
};

}  // namespace tessera
