#include "training/output/memory_report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "base/process/process_memory.h"
#include "base/text/quantities.h"

namespace tessera {
namespace {

// The values of all ranks reduced, one by one.
std::vector<int64_t> over_ranks(std::vector<int64_t> values, ReduceOp op, Communicator& world) {
  const auto count = static_cast<int64_t>(values.size());
  world.all_reduce(at::from_blob(values.data(), {count}, at::kLong), op).wait();
  return values;
}

}  // namespace

std::string ledger_text(const MemoryLedger& ledger) {
  std::string text;
  for (int i = 0; i < kMemoryClasses; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    if (ledger.bytes(memory_class) == 0) continue;
    text += fmt::format("{} {}, ", memory_class_name(memory_class),
                        bytes_text(ledger.bytes(memory_class)));
  }
  return text;
}

int64_t peak_bytes(const Device& device) {
  return device.is_cpu() ? peak_resident_bytes() : device.memory().peak;
}

MemoryReport::MemoryReport(Communicator& world, const Device& device, Console& console)
    : world_(world), device_(device), console_(console), before_(anonymous_bytes()) {}

void MemoryReport::start(const MemoryLedger& ledger, const MemoryLedger& predicted) {
  engine_bytes_ = ledger.total();
  console_.line(fmt::format("memory of rank 0: {}in memory {}; from the parameter counts: {}",
                            ledger_text(ledger), bytes_text(ledger.total()),
                            bytes_text(predicted.total())));
  const int64_t largest = over_ranks({ledger.total()}, ReduceOp::kMax, world_)[0];
  const int64_t sum = over_ranks({ledger.total()}, ReduceOp::kSum, world_)[0];
  console_.line(fmt::format("memory of {} ranks: the largest {}, all together {}", world_.size(),
                            bytes_text(largest), bytes_text(sum)));
}

void MemoryReport::after_step() {
  if (++steps_ != 2) return;
  const auto most = over_ranks({peak_bytes(device_), anonymous_bytes() - before_, engine_bytes_},
                               ReduceOp::kMax, world_);
  if (!device_.is_cpu()) {
    console_.line(fmt::format(
        "measured after two steps, largest rank: peak {} allocated on the GPU; the engine's share "
        "{}",
        bytes_text(most[0]), bytes_text(most[2])));
    return;
  }
  console_.line(fmt::format(
      "measured after two steps, largest rank: peak {} resident, {} more anonymous memory than "
      "before the model; the engine's share {}",
      bytes_text(most[0]), bytes_text(most[1]), bytes_text(most[2])));
}

}  // namespace tessera
