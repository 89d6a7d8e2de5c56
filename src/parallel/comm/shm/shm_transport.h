#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/core/call_record.h"
#include "parallel/comm/core/transport.h"
#include "parallel/comm/shm/shared_words.h"

namespace tessera {

// Collectives through memory that all ranks of the group can read: a window of one node for
// processes, the heap for threads. Each rank owns a segment
//
//   [ control words | cell for send | slot 0 | slot 1 ]
//
// writes only there, and reads the others'. Tensors larger than a slot go in chunks. Chunk k uses
// slot k % 2, and one meeting (barrier) per chunk is enough: whoever writes chunk k + 2 has passed
// meeting k + 1, to which every peer came after it had read chunk k.
//
// clang-format off
//   write chunk k to my slot k%2 | meet k | read chunk k from the others | write chunk k+1 | ...
// clang-format on
//
// Beside its arrival at the first meeting of an operation a rank leaves its call, and compares it
// with the others' afterwards: data of another operation is never taken for what was asked for.
//
// Waiting ranks sleep on a futex: cores are often oversubscribed, and a rank that spins takes the
// core from the one it waits for. Sums run in rank order, so every rank gets the same bits.
// (Shared-memory collectives as in Graham & Shipman 2008; the order and the sleep are ours.)
class ShmTransport final : public CollectiveTransport {
 public:
  // `segments[r]` is rank r's segment of segment_bytes(size, window_bytes) bytes, aligned to 64;
  // `memory` keeps them mapped. window_bytes is for both slots together.
  ShmTransport(int rank, std::vector<std::byte*> segments, int64_t window_bytes,
               std::shared_ptr<void> memory);

  static int64_t segment_bytes(int size, int64_t window_bytes);
  // The part at its start that must be zero before the first operation of any rank.
  static int64_t control_bytes(int size);
  // Throws Error if a window of this size cannot hold one chunk.
  static void check_window(const std::string& group, int size, int64_t window_bytes);

 private:
  struct Segment {
    SharedWord* meeting;        // of rank 0: number of meetings held; peers sleep on it
    SharedWord* arrivals;       // of rank 0: ranks that came to the next meeting
    SharedWord* sleepers;       // of rank 0: who sleeps on `meeting`
    SharedWord* progress;       // meetings to which this rank came
    SharedNumber* calls;        // this rank's, at meetings of even and of odd number
    SharedWord* sent;           // [size] chunks put into the cell for each destination
    SharedWord* taken;          // [size] chunks taken from each source's cell
    SharedWord* mail_sleepers;  // [2 * size] sleepers on sent and on taken
    char* cell;
    char* slots;
  };

  void meet(const Operation& op, const Watch& watch);
  void arrive(const Watch& watch);
  Awaited missing() const;
  std::span<SharedNumber> call_of(int rank, uint32_t meeting) const;
  void compare_calls(uint32_t meeting, const Watch& watch) const;
  char* slot(int rank) const;  // where rank's part of the coming (before meet) chunk goes

  void all_gather(const Operation& op, const Watch& watch) override;
  void reduce_scatter(const Operation& op, const Watch& watch) override;
  void all_reduce(const Operation& op, const Watch& watch) override;
  void all_reduce_at_once(const Operation& op, const Watch& watch);
  void broadcast(const Operation& op, const Watch& watch) override;
  void all_to_all(const Operation& op, const Watch& watch) override;
  void send(const Operation& op, const Watch& watch) override;
  void recv(const Operation& op, const Watch& watch) override;
  void barrier(const Operation& op, const Watch& watch) override { meet(op, watch); }

  int rank_;
  int size_;
  std::vector<Segment> segments_;
  int64_t slot_bytes_;
  int64_t cell_bytes_;
  std::shared_ptr<void> memory_;
  uint32_t meetings_ = 0;     // to which this rank came; wraps
  uint64_t met_for_ = 0;      // sequence number of the last operation that met
  uint64_t collectives_ = 0;  // operations that met
};

}  // namespace tessera
