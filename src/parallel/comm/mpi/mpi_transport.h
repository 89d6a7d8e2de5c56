#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "parallel/comm/core/transport.h"

namespace tessera {

// Collectives over MPI messages, for groups that span nodes. Everything is built from one
// primitive, exchange(): non-blocking sends and receives that are polled with a back-off sleep.
// Blocking calls of several threads are many times slower than one (measured), cannot be timed out,
// and cannot say which peer is missing. Sums run in rank order: an exchange of slices, then a local
// sum.
//
// The tag of a collective's messages stands for the call. So a rank that has left an operation out,
// or gives other sizes, is waited for (and named, at the time-out) instead of having its data taken
// for those of another operation.
class MpiTransport final : public CollectiveTransport {
 public:
  // Messages above `message_bytes` are split: MPI counts are int.
  // `lease` keeps `comm` from being freed.
  MpiTransport(MPI_Comm comm, int64_t message_bytes, std::shared_ptr<void> lease);

 private:
  struct Message {
    char* data;
    int64_t bytes;
    int peer;
    bool receive;
  };
  class Pending;

  void exchange(const std::vector<Message>& messages, int tag, const Operation& op,
                const Watch& watch);
  int collective_tag(const Operation& op);
  void all_gather(const Operation& op, const Watch& watch) override;
  void reduce_scatter(const Operation& op, const Watch& watch) override;
  void all_reduce(const Operation& op, const Watch& watch) override;
  void broadcast(const Operation& op, const Watch& watch) override;
  void all_to_all(const Operation& op, const Watch& watch) override;
  void send(const Operation& op, const Watch& watch) override;
  void recv(const Operation& op, const Watch& watch) override;
  void barrier(const Operation& op, const Watch& watch) override;

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
  int64_t message_bytes_;
  std::shared_ptr<void> lease_;
  std::shared_ptr<std::vector<char>> scratch_;
  uint64_t tagged_for_ = 0;   // sequence number of the last collective
  uint64_t collectives_ = 0;  // that were run
  int tag_ = 0;               // of the last one
};

}  // namespace tessera
