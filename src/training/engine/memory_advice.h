#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/executor/memory_model.h"

namespace tessera {

// What a run chooses, as far as it decides a rank's memory.
struct MemoryCase {
  ChainSize chain;
  MeshShape mesh;
  ShardingPolicy policy;
  ExecutorOptions options;
  int64_t micro_batch_size = 1;
  bool selective_recompute = false;
  bool can_offload = true;  // false on a CPU, whose memory is the host's already
};

struct MemoryAdvice {
  std::vector<std::string> settings;  // one or two, as the configuration spells them
  int64_t needs = 0;                  // bytes: the engine's and the activations'
};

struct MemoryAdvices {
  std::vector<MemoryAdvice> fitting;  // at most three, the cheapest first
  MemoryAdvice closest;               // of all, what needs least: for the case that none fits
  // Settings that take memory from activations, by how much nobody has measured; cheapest first.
  std::vector<std::string> unknown;
};

// clang-format off
// The cheapest one or two settings with which a rank's memory would stay within `limit` bytes,
// where a step takes `activations` bytes beside the engine's (predict_memory()). Two settings cost
// the sum, and are not proposed where one of them is enough. The costs, in the order of trying:
//
//   1    zero: 1                           the bytes of zero 0's reduction, in two halves
//   2    training.micro_batch_size halved  smaller matrix products; activations halve with it
//   3    zero: 2                           a reduction each micro-batch
//   4    reshard_after_forward: true       one more gather of the stages that stayed
//   4    dp_shard doubled                  gathers over twice the ranks (dp_replicate halved)
//   6    zero: 3                           two gathers of all parameters each micro-batch
//   -    memory.recompute: selective, full the forward pass in part or whole again: unknown effect
//   20   memory.offload: optimizer         states cross the bus each step
//   25   memory.offload: all               gradients too, each micro-batch
// clang-format on
MemoryAdvices advise_memory(const MemoryCase& now, int64_t limit, int64_t activations);

}  // namespace tessera
