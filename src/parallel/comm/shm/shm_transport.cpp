#include "parallel/comm/shm/shm_transport.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "parallel/comm/core/reduce_ranks.h"

namespace tessera {
namespace {

constexpr int64_t kLine = 64;  // cache line; no two ranks write to the same one
// Up to here every rank sums the whole tensor itself, which needs one meeting instead of two.
constexpr int64_t kAtOnceBytes = 32 << 10;
constexpr int64_t kCellBytes = 64 << 10;

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}
int64_t round_down(int64_t value, int64_t unit) {
  return value / unit * unit;
}

int64_t slot_bytes_of(int64_t window_bytes) {
  return round_down(window_bytes / 2, kLine);
}
int64_t cell_bytes_of(int64_t window_bytes) {
  return std::min(kCellBytes, slot_bytes_of(window_bytes));
}
constexpr auto kCallFields = static_cast<int64_t>(std::tuple_size_v<CallRecord>);
constexpr int64_t kCallBytes = kLine;  // of one call
static_assert(kCallFields * static_cast<int64_t>(sizeof(SharedNumber)) <= kCallBytes);
constexpr int64_t kHeadBytes = 4 * kLine + 2 * kCallBytes;  // before the counters of send and recv

int64_t mail_bytes_of(int size) {
  return round_up(int64_t{4} * size * 4, kLine);
}

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

int64_t ShmTransport::segment_bytes(int size, int64_t window_bytes) {
  return control_bytes(size) + cell_bytes_of(window_bytes) + 2 * slot_bytes_of(window_bytes);
}

int64_t ShmTransport::control_bytes(int size) {
  return kHeadBytes + mail_bytes_of(size);
}

void ShmTransport::check_window(const std::string& group, int size, int64_t window_bytes) {
  // A chunk holds at least one line for every rank.
  const int64_t least = 2 * kLine * size;
  if (window_bytes < least)
    fail("comm", "{}: a window of {} bytes is too small for {} ranks; it must hold {} bytes", group,
         window_bytes, size, least);
}

ShmTransport::ShmTransport(int rank, std::vector<std::byte*> segments, int64_t window_bytes,
                           std::shared_ptr<void> memory)
    : rank_(rank),
      size_(static_cast<int>(segments.size())),
      slot_bytes_(slot_bytes_of(window_bytes)),
      cell_bytes_(cell_bytes_of(window_bytes)),
      memory_(std::move(memory)) {
  const auto words = [](std::byte* at) { return reinterpret_cast<SharedWord*>(at); };
  for (std::byte* base : segments) {
    Segment s;
    s.meeting = words(base);
    s.arrivals = words(base + kLine);
    s.sleepers = words(base + 2 * kLine);
    s.progress = words(base + 3 * kLine);
    s.calls = reinterpret_cast<SharedNumber*>(base + 4 * kLine);
    std::byte* mail = base + kHeadBytes;
    s.sent = words(mail);
    s.taken = s.sent + size_;
    s.mail_sleepers = s.taken + size_;
    s.cell = reinterpret_cast<char*>(mail + mail_bytes_of(size_));
    s.slots = s.cell + cell_bytes_;
    segments_.push_back(s);
  }
}

char* ShmTransport::slot(int rank) const {
  return segments_[rank].slots + (meetings_ & 1) * slot_bytes_;
}

std::span<SharedNumber> ShmTransport::call_of(int rank, uint32_t meeting) const {
  return {segments_[rank].calls + (meeting & 1) * (kCallBytes / sizeof(SharedNumber)),
          std::tuple_size_v<CallRecord>};
}

// A barrier. The first of an operation also compares the calls.
void ShmTransport::meet(const Operation& op, const Watch& watch) {
  const bool first = op.sequence != met_for_;
  const uint32_t meeting = meetings_;
  if (first) {
    met_for_ = op.sequence;
    const CallRecord call = call_record(op, ++collectives_);
    const auto place = call_of(rank_, meeting);
    for (size_t i = 0; i < call.size(); ++i) place[i].store(call[i], std::memory_order_relaxed);
  }
  arrive(watch);
  if (first) compare_calls(meeting, watch);
}

// The last rank to come opens the barrier; the others sleep.
void ShmTransport::arrive(const Watch& watch) {
  const Segment& hall = segments_[0];
  const uint32_t held = meetings_;
  segments_[rank_].progress->store(++meetings_, std::memory_order_relaxed);
  if (hall.arrivals->fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    hall.arrivals->store(0, std::memory_order_relaxed);
    hall.meeting->store(held + 1);
    wake_if_sleeping(*hall.meeting, *hall.sleepers);
    return;
  }
  wait_on(
      *hall.meeting, *hall.sleepers, [&](uint32_t now) { return now != held; },
      [&] { watch.check([&] { return missing(); }); });
}

Awaited ShmTransport::missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r)
    if (segments_[r].progress->load(std::memory_order_relaxed) != meetings_) ranks.push_back(r);
  return {std::move(ranks), "did not come"};
}

// Everybody's call of the meeting that was held lies still: nobody writes over it before the
// meeting after the next, to which this rank must come.
void ShmTransport::compare_calls(uint32_t meeting, const Watch& watch) const {
  const auto read = [&](int rank) {
    const auto place = call_of(rank, meeting);
    CallRecord call{};
    for (size_t i = 0; i < call.size(); ++i) call[i] = place[i].load(std::memory_order_relaxed);
    return call;
  };
  const CallRecord own = read(rank_);
  bool equal = true;
  for (int r = 0; r < size_; ++r) equal = equal && read(r) == own;
  if (equal) return;
  std::vector<CallRecord> calls;
  for (int r = 0; r < size_; ++r) calls.push_back(read(r));
  throw Error(disagreement(watch.group().name, calls, *watch.group().ranks));
}

// out [size * n] <- everyone's in [n]; a slot holds a piece of one in.
void ShmTransport::all_gather(const Operation& op, const Watch& watch) {
  const int64_t slice = op.count * op.element_bytes;
  for (int64_t at = 0; at < slice; at += slot_bytes_) {
    const int64_t bytes = std::min(slot_bytes_, slice - at);
    copy(slot(rank_), op.in_data + at, bytes);
    const uint32_t chunk = meetings_;
    meet(op, watch);
    for (int step = 1; step < size_; ++step) {  // each rank starts at another peer
      const int peer = (rank_ + step) % size_;
      copy(op.out_data + peer * slice + at, segments_[peer].slots + (chunk & 1) * slot_bytes_,
           bytes);
    }
    char* own = op.out_data + rank_ * slice + at;
    if (own != op.in_data + at) copy(own, op.in_data + at, bytes);
  }
}

// A slot holds size cells: cell d is a piece of this rank's slice d. The rank's own slice is not
// copied.
void ShmTransport::reduce_scatter(const Operation& op, const Watch& watch) {
  const int64_t cell = round_down(slot_bytes_ / size_, kLine) / op.element_bytes;
  const int64_t out_bytes = element_size(op.out_dtype);
  std::vector<const void*> sources(size_);
  for (int64_t at = 0; at < op.count; at += cell) {
    const int64_t n = std::min(cell, op.count - at);
    const auto input = [&](int slice) {
      return op.in_data + (slice * op.count + at) * op.element_bytes;
    };
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_)
        copy(slot(rank_) + peer * cell * op.element_bytes, input(peer), n * op.element_bytes);
    const uint32_t chunk = meetings_;
    meet(op, watch);
    for (int peer = 0; peer < size_; ++peer)
      sources[peer] =
          segments_[peer].slots + (chunk & 1) * slot_bytes_ + rank_ * cell * op.element_bytes;
    sources[rank_] = input(rank_);
    reduce_ranks(op.out_data + at * out_bytes, op.out_dtype, sources.data(), op.dtype, size_, n,
                 ReduceOp::kSum);
  }
}

void ShmTransport::all_reduce_at_once(const Operation& op, const Watch& watch) {
  copy(slot(rank_), op.out_data, op.count * op.element_bytes);
  std::vector<const void*> sources(size_);
  for (int peer = 0; peer < size_; ++peer) sources[peer] = slot(peer);
  sources[rank_] = op.out_data;
  meet(op, watch);
  reduce_ranks(op.out_data, op.dtype, sources.data(), op.dtype, size_, op.count, op.reduce);
}

// A reduce-scatter and an all-gather in one pipeline: slice r of a chunk is reduced by rank r. In a
// slot, cell d != rank is this rank's part of slice d of chunk k; its own cell, which nobody needs
// as an input, takes the finished slice of chunk k - 1. So k chunks take k + 1 meetings:
//
//   meeting k   inputs of chunk k, results of chunk k-1
void ShmTransport::all_reduce(const Operation& op, const Watch& watch) {
  if (op.count * op.element_bytes <= std::min(kAtOnceBytes, slot_bytes_))
    return all_reduce_at_once(op, watch);
  const int64_t line = kLine / op.element_bytes;
  const int64_t cell = round_down(slot_bytes_ / size_, kLine) / op.element_bytes;
  const int64_t chunks = (op.count + cell * size_ - 1) / (cell * size_);
  // Chunks are made equal, as the work between meetings should be.
  const int64_t span =
      std::min(cell * size_, round_up((op.count + chunks - 1) / chunks, line * size_));

  struct Piece {
    int64_t at, n;  // elements
  };
  const auto piece = [&](int64_t chunk, int slice) {
    const int64_t begin = chunk * span, end = std::min(op.count, begin + span);
    const int64_t part = std::min(cell, round_up((end - begin + size_ - 1) / size_, line));
    const int64_t at = std::min(end, begin + slice * part);
    return Piece{at, std::min(end, at + part) - at};
  };
  const auto data = [&](int64_t at) { return op.out_data + at * op.element_bytes; };
  const int64_t cell_bytes = cell * op.element_bytes;

  std::vector<const void*> sources(size_);
  for (int64_t chunk = 0; chunk * span < op.count + span; ++chunk) {
    const bool inputs = chunk * span < op.count;
    char* const mine = slot(rank_);
    if (chunk > 0) {  // the peers' inputs of the last chunk lie in the other slot
      const Piece own = piece(chunk - 1, rank_);
      for (int peer = 0; peer < size_; ++peer)
        sources[peer] =
            segments_[peer].slots + ((meetings_ + 1) & 1) * slot_bytes_ + rank_ * cell_bytes;
      sources[rank_] = data(own.at);
      reduce_ranks(data(own.at), op.dtype, sources.data(), op.dtype, size_, own.n, op.reduce);
      copy(mine + rank_ * cell_bytes, data(own.at), own.n * op.element_bytes);
    }
    if (inputs)
      for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_) {
          const Piece part = piece(chunk, peer);
          copy(mine + peer * cell_bytes, data(part.at), part.n * op.element_bytes);
        }
    const uint32_t now = meetings_;
    meet(op, watch);
    if (chunk == 0) continue;
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const Piece part = piece(chunk - 1, peer);
      copy(data(part.at), segments_[peer].slots + (now & 1) * slot_bytes_ + peer * cell_bytes,
           part.n * op.element_bytes);
    }
  }
}

void ShmTransport::broadcast(const Operation& op, const Watch& watch) {
  const int64_t total = op.count * op.element_bytes;
  for (int64_t at = 0; at < total; at += slot_bytes_) {
    const int64_t bytes = std::min(slot_bytes_, total - at);
    char* const root = slot(op.peer);
    if (rank_ == op.peer) copy(root, op.out_data + at, bytes);
    meet(op, watch);
    if (rank_ != op.peer) copy(op.out_data + at, root, bytes);
  }
}

void ShmTransport::all_to_all(const Operation& op, const Watch& watch) {
  const int64_t slice = op.count * op.element_bytes;
  const int64_t cell = round_down(slot_bytes_ / size_, kLine);
  for (int64_t at = 0; at < slice; at += cell) {
    const int64_t bytes = std::min(cell, slice - at);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) copy(slot(rank_) + peer * cell, op.in_data + peer * slice + at, bytes);
    const uint32_t chunk = meetings_;
    meet(op, watch);
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      copy(op.out_data + peer * slice + at,
           segments_[peer].slots + (chunk & 1) * slot_bytes_ + rank_ * cell, bytes);
    }
    copy(op.out_data + rank_ * slice + at, op.in_data + rank_ * slice + at, bytes);
  }
}

// Through the sender's cell, a chunk at a time: sent[d] counts what was put there for d, taken[s]
// of the receiver what it took. Equal counts mean that the cell is free.
void ShmTransport::send(const Operation& op, const Watch& watch) {
  const Segment& mine = segments_[rank_];
  const Segment& theirs = segments_[op.peer];
  SharedWord& sent = mine.sent[op.peer];
  SharedWord& taken = theirs.taken[rank_];
  const int64_t total = op.count * op.element_bytes;
  for (int64_t at = 0; at < total; at += cell_bytes_) {
    copy(mine.cell, op.in_data + at, std::min(cell_bytes_, total - at));
    const uint32_t count = sent.fetch_add(1) + 1;
    wake_if_sleeping(sent, mine.mail_sleepers[op.peer]);
    wait_on(
        taken, theirs.mail_sleepers[size_ + rank_], [&](uint32_t now) { return now == count; },
        [&] { watch.check([&] {
                return Awaited{{op.peer}, "did not receive"};
              }); });
  }
}

void ShmTransport::recv(const Operation& op, const Watch& watch) {
  const Segment& mine = segments_[rank_];
  const Segment& theirs = segments_[op.peer];
  SharedWord& sent = theirs.sent[rank_];
  SharedWord& taken = mine.taken[op.peer];
  const int64_t total = op.count * op.element_bytes;
  for (int64_t at = 0; at < total; at += cell_bytes_) {
    const uint32_t before = taken.load(std::memory_order_relaxed);
    wait_on(
        sent, theirs.mail_sleepers[rank_], [&](uint32_t now) { return now != before; },
        [&] { watch.check([&] {
                return Awaited{{op.peer}, "did not send"};
              }); });
    copy(op.out_data + at, theirs.cell, std::min(cell_bytes_, total - at));
    taken.store(before + 1);
    wake_if_sleeping(taken, mine.mail_sleepers[size_ + op.peer]);
  }
}

}  // namespace tessera
