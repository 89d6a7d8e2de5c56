#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <string>

#include "parallel/device/device.h"
#include "parallel/memory_ledger.h"
#include "training/engine/memory_advice.h"

namespace tessera {

// The settings that would fit, as text for a message, or that none is known to.
std::string advices_text(const MemoryAdvices& advices);

// What to say when a GPU is full: what this rank's engine holds (`ledger`; nullopt: it was still
// being allocated), how much a step is known to need beside it, and the cheapest settings that
// would fit. `limit`: the bytes that the rank can have; `cause`: the allocator's words.
std::string out_of_memory_text(const MemoryCase& run, const std::optional<MemoryLedger>& ledger,
                               int64_t limit, const std::string& cause);

// Collects what is known of a run's memory, to explain an error if the GPU is full.
class OutOfMemory {
 public:
  // Call this as soon as the run's choices are known, before anything is allocated.
  void expect(int rank, const Device& device, MemoryCase run);
  // When the engine's memory is there.
  void allocated(const MemoryLedger& ledger) { ledger_ = ledger; }

  // Throws an Error with out_of_memory_text(), or rethrows `error` if expect() was not called.
  [[noreturn]] void explain(const c10::OutOfMemoryError& error) const;

 private:
  int rank_ = 0;
  Device device_;
  std::optional<MemoryCase> run_;
  std::optional<MemoryLedger> ledger_;
};

}  // namespace tessera
