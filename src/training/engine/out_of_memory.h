#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <string>

#include "parallel/device/device.h"
#include "parallel/memory_ledger.h"
#include "training/engine/memory_advice.h"

namespace tessera {

// The settings that would fit, or that none of those that are known does.
std::string advices_text(const MemoryAdvices& advices);

// What to say when a GPU is full: what this rank's engine holds (`ledger`; none: it was being
// allocated), what a step needs beside it as far as it came, and the cheapest settings that would
// fit. `limit`: the bytes that the rank can have; `cause`: the allocator's words.
std::string out_of_memory_text(const MemoryCase& run, const std::optional<MemoryLedger>& ledger,
                               int64_t limit, const std::string& cause);

// Knows a run's memory for the case that the GPU is full.
class OutOfMemory {
 public:
  // As soon as it is known, before anything is allocated.
  void expect(int rank, const Device& device, MemoryCase run);
  // When the engine's memory is there.
  void allocated(const MemoryLedger& ledger) { ledger_ = ledger; }

  // Throws the Error, or `error` itself if nothing is known of the run.
  [[noreturn]] void explain(const c10::OutOfMemoryError& error) const;

 private:
  int rank_ = 0;
  Device device_;
  std::optional<MemoryCase> run_;
  std::optional<MemoryLedger> ledger_;
};

}  // namespace tessera
