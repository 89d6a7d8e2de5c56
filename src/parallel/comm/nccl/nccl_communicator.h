#pragma once

#include <chrono>
#include <memory>

#include "parallel/comm/core/communicator.h"
#include "parallel/device/device.h"

namespace tessera {

struct NcclOptions {
  // Every wait of the host ends with an Error after this long, and so does an operation that is the
  // oldest of its group on the GPU for this long, whether or not the host waits for it.
  std::chrono::milliseconds timeout{600000};
  std::chrono::milliseconds file_timeout{3600000};
};

// The ranks of `host` (the MPI world), with tensors of `device` as well: those travel through NCCL,
// CPU tensors and barrier() through `host`, whose abort flag is this world's. NCCL's id is
// broadcast over `host`, so that there is no port and no address to agree on. split() splits both.
// Collective.
//
// - Each group has a high-priority stream. An operation runs there after what the caller's current
//   stream holds when it is started; Work::wait() makes the caller's current stream wait for it,
//   and the host waits for neither. Operations of one group on CPU tensors and on GPU tensors are
//   not ordered with each other. Different groups overlap; every rank starts the operations of all
//   its groups in one order, or NCCL's kernels may wait for each other over a full GPU.
// - Sums have NCCL's order, which is its own and depends on sizes and topology; halves are rounded
//   at every step of an all_reduce. A max or min may lose a NaN: agree on a flag instead. Where the
//   order matters: reduce_scatter of bf16/fp16 to fp32 exchanges the slices (all-to-all) and adds
//   them up in rank order in fp32. For that it allocates size() * n halves, as much as its input,
//   on the group's stream until it is done.
// - A group holds the tensors of at most 1024 operations that the GPU has not finished; starting
//   another one waits for the oldest.
// - A send waits for its recv; two ranks that both send first may wait for each other.
//
// UserError if two ranks use one GPU. In a build without CUDA: UserError that says how to get one.
std::unique_ptr<Communicator> make_nccl_world(std::unique_ptr<Communicator> host,
                                              const Device& device, NcclOptions options = {});

}  // namespace tessera
