#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/core/communicator.h"
#include "parallel/device/device.h"
#include "parallel/memory_ledger.h"
#include "training/output/console.h"

namespace tessera {

// The classes that hold something, "name bytes, " each.
std::string ledger_text(const MemoryLedger& ledger);

// The most memory that this rank has held so far: of a GPU what was allocated there, else the
// process's resident memory.
int64_t peak_bytes(const Device& device);

// Says what a run's memory is for: before the first step what the engine has allocated and what
// arithmetic said, after the second step what the system measures. All methods are collective over
// `world`.
class MemoryReport {
 public:
  // Must be made before the model: what the process holds at this moment is not counted as the
  // model's.
  MemoryReport(Communicator& world, const Device& device, Console& console);

  // `ledger`: what this rank has allocated; `predicted`: from the parameter counts
  // (memory_model.h).
  void start(const MemoryLedger& ledger, const MemoryLedger& predicted);
  // Call this after each step. It reports after the second, when every buffer has been used once.
  void after_step();

 private:
  Communicator& world_;
  const Device device_;
  Console& console_;
  int64_t before_;
  int64_t engine_bytes_ = 0;
  int steps_ = 0;
};

}  // namespace tessera
