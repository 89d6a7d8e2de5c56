#pragma once

#include <array>
#include <cstdint>

namespace tessera {

// What a rank's bytes are for.
enum class MemoryClass {
  kParameters,   // full copies that stay between steps
  kMaster,       // master weights that are not part of the full copies
  kGradients,    // gradients that stay over a backward pass
  kMoments,      // of the optimizer
  kGatherRing,   // slots that parameters are gathered into
  kReduceRing,   // slots that a backward pass writes gradients into
  kStaging,      // what reductions and offloaded updates need besides
  kSnapshot,     // copies of states on their way to a checkpoint
  kLogits,       // the loss's buffers, which come and go with each micro-batch: the most
  kPoison,       // debug: what released parameters read as
  kOffloadHost,  // pinned memory of the host, where the others are a GPU's
  kOffloadFile,  // on disk, not in memory
};
inline constexpr int kMemoryClasses = 12;

inline const char* memory_class_name(MemoryClass memory_class) {
  constexpr std::array<const char*, kMemoryClasses> kNames = {
      "parameters",         "master weights", "gradients",         "moments", "gather ring",
      "reduce ring",        "staging",        "checkpoint copies", "logits",  "poison slot",
      "pinned host memory", "moments on disk"};
  return kNames[static_cast<size_t>(memory_class)];
}

// How many bytes of each class this rank's engine has allocated. All of it but the logits is
// allocated at the start: steps add nothing.
class MemoryLedger {
 public:
  void add(MemoryClass memory_class, int64_t bytes) { bytes_[index(memory_class)] += bytes; }
  int64_t bytes(MemoryClass memory_class) const { return bytes_[index(memory_class)]; }
  // Of the device's memory: without what lies on disk or in the host's pinned memory.
  int64_t total() const {
    int64_t sum = -bytes(MemoryClass::kOffloadFile) - bytes(MemoryClass::kOffloadHost);
    for (int64_t bytes : bytes_) sum += bytes;
    return sum;
  }
  bool operator==(const MemoryLedger&) const = default;

 private:
  static size_t index(MemoryClass memory_class) { return static_cast<size_t>(memory_class); }
  std::array<int64_t, kMemoryClasses> bytes_{};
};

}  // namespace tessera
