#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/core/communicator.h"

namespace tessera {

enum class OperationKind : int64_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier
};

const char* operation_name(OperationKind kind);

// One communication with checked arguments. Addresses are taken when the operation is started: the
// tensors are only kept so that the memory stays.
struct Operation {
  OperationKind kind = OperationKind::kBarrier;
  at::Tensor out;  // written; all_reduce and broadcast work in place on it
  at::Tensor in;   // read
  ReduceOp reduce = ReduceOp::kSum;
  int peer = -1;           // root, destination or source
  uint64_t sequence = 0;   // 1, 2, ... within the group
  bool file_work = false;  // started while ranks were at work on files

  char* out_data = nullptr;
  const char* in_data = nullptr;
  at::ScalarType dtype = at::kByte;      // of the elements that travel
  at::ScalarType out_dtype = at::kByte;  // differs from dtype in a reduce_scatter of halves to fp32
  int64_t count = 0;  // elements of one slice (all_gather, reduce_scatter, all_to_all), else of all
  int64_t element_bytes = 1;  // of dtype

  // Such as "all_reduce(sum, Float, 16 elements)", with a peer's number in the world.
  std::string text(const RankNames& ranks) const;
};

// Each checks the arguments of a call on `group`, which messages name, and returns the operation.
// Error if they break a rule.
Operation all_gather_operation(const Communicator& group, at::Tensor out, at::Tensor in);
Operation reduce_scatter_operation(const Communicator& group, at::Tensor out, at::Tensor in);
Operation all_reduce_operation(const Communicator& group, at::Tensor tensor, ReduceOp op);
Operation broadcast_operation(const Communicator& group, at::Tensor tensor, int root);
Operation all_to_all_operation(const Communicator& group, at::Tensor out, at::Tensor in);
Operation send_operation(const Communicator& group, at::Tensor tensor, int destination);
Operation recv_operation(const Communicator& group, at::Tensor tensor, int source);
// The new group that a split puts a rank into.
struct SplitPlace {
  int rank;                  // its number there
  std::vector<int> members;  // the ranks of the group that is split, by rank in the new one
  int size() const { return static_cast<int>(members.size()); }
};

// Collective: an all_gather of (color, key) over `group`; ties of keys are ordered by rank.
SplitPlace find_split_place(Communicator& group, int color, int key);
// Error if `color` is negative.
void check_color(const Communicator& group, int color);

// Bytes of one element of a dtype.
int64_t element_size(at::ScalarType dtype);

}  // namespace tessera
