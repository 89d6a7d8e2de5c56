#include "parallel/executor/reduce_memory.h"

#include <algorithm>

namespace tessera {
namespace {

struct Sizes {
  int64_t staging = 0;
  int64_t wire = 0;
  int64_t shard_slot = 0;
};

int64_t total_bytes(const std::vector<at::Tensor>& tensors) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += static_cast<int64_t>(tensor.nbytes());
  return sum;
}

}  // namespace

ReduceMemory::ReduceMemory(const Device& device,
                           const std::vector<std::vector<const BucketGradient*>>& of_stage) {
  std::vector<Sizes> largest;
  at::ScalarType wide = at::kFloat;  // of all gradients alike
  for (const auto& gradients : of_stage) {
    largest.resize(std::max(largest.size(), gradients.size()));
    for (size_t i = 0; i < gradients.size(); ++i) {
      const BucketGradient* gradient = gradients[i];
      if (gradient == nullptr) continue;
      wide = gradient->kept().scalar_type();
      has_offloaded_ |= gradient->offloaded();
      largest[i].staging = std::max(largest[i].staging, gradient->staging_numel());
      largest[i].wire = std::max(largest[i].wire, gradient->wire_bytes());
      largest[i].shard_slot = std::max(largest[i].shard_slot, gradient->shard_slot_numel());
    }
  }
  for (const Sizes& sizes : largest) {
    staging_.push_back(device.zeros({sizes.staging}, wide));
    wire_.push_back(device.zeros({sizes.wire}, at::kByte));
    for (auto& slots : shard_slots_) slots.push_back(device.zeros({sizes.shard_slot}, wide));
  }
}

ReduceBuffers ReduceMemory::buffers(size_t i, int turn) const {
  const auto set = static_cast<size_t>(turn % kShardSlotSets);
  return {.staging = staging_[i], .wire = wire_[i], .shard_slot = shard_slots_[set][i]};
}

int64_t ReduceMemory::bytes() const {
  int64_t bytes = total_bytes(staging_) + total_bytes(wire_);
  for (const auto& slots : shard_slots_) bytes += total_bytes(slots);
  return bytes;
}

}  // namespace tessera
