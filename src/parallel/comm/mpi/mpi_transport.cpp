#include "parallel/comm/mpi/mpi_transport.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/xxh3.h"
#include "parallel/comm/core/call_record.h"
#include "parallel/comm/core/reduce_ranks.h"
#include "parallel/comm/mpi/mpi_resources.h"

namespace tessera {
namespace {

constexpr int kPointToPointTag = 1;
// Tags of collectives lie from kFirstTag to twice that; MPI promises tags up to 32767.
constexpr int kFirstTag = 1 << 14;
// Up to here an all_reduce gathers everything, which needs one exchange instead of two.
constexpr int64_t kAtOnceBytes = 16 << 10;
// Incoming pieces of a reduction, of all peers together.
constexpr int64_t kScratchBytes = 8 << 20;

// MPI moves data only inside calls, so a poller cannot sleep long; but cores are shared, so it must
// not spin either: some yields, then sleeps of up to 100 us.
class BackOff {
 public:
  void pause() {
    if (++idle_ <= 20)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(100, 5 * (idle_ - 20))));
  }
  void reset() { idle_ = 0; }

 private:
  int idle_ = 0;
};

}  // namespace

// Requests in flight. If they cannot be completed, receives are cancelled, and the memory that
// MPI may still touch is left allocated.
class MpiTransport::Pending {
 public:
  struct Entry {
    int peer;
    bool receive;
  };
  Pending(const Operation& op, std::shared_ptr<std::vector<char>> scratch)
      : op_(op), scratch_(std::move(scratch)) {}
  ~Pending() {
    bool left = false;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i] == MPI_REQUEST_NULL) continue;
      if (entries[i].receive) MPI_Cancel(&requests[i]);
      MPI_Request_free(&requests[i]);
      left = true;
    }
    if (left) {
      // Deliberately never freed: the library may still read or write here.
      new std::pair<Operation, std::shared_ptr<std::vector<char>>>(op_, scratch_);
    }
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  Awaited missing() const {
    std::vector<int> from, to;
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i] != MPI_REQUEST_NULL)
        (entries[i].receive ? from : to).push_back(entries[i].peer);
    const auto once = [](std::vector<int> ranks) {
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      return ranks;
    };
    if (!from.empty()) return {once(std::move(from)), "sent nothing for it"};
    return {once(std::move(to)), "did not receive"};
  }

  std::vector<MPI_Request> requests;
  std::vector<Entry> entries;

 private:
  const Operation& op_;
  std::shared_ptr<std::vector<char>> scratch_;
};

MpiTransport::MpiTransport(MPI_Comm comm, int64_t message_bytes, std::shared_ptr<void> lease)
    : comm_(comm), message_bytes_(message_bytes), lease_(std::move(lease)) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

// All pieces of one operation have one tag.
int MpiTransport::collective_tag(const Operation& op) {
  if (op.sequence != tagged_for_) {
    tagged_for_ = op.sequence;
    const CallRecord call = call_record(op, ++collectives_);
    tag_ = kFirstTag + static_cast<int>(xxh3_64(call.data(), sizeof(call)) % kFirstTag);
  }
  return tag_;
}

// Starts all messages and waits for them. Pieces of one message arrive in order, since MPI keeps
// the order of messages with equal peer and tag.
void MpiTransport::exchange(const std::vector<Message>& messages, int tag, const Operation& op,
                            const Watch& watch) {
  Pending pending(op, scratch_);
  for (const bool receive : {true, false}) {  // receives first: then data goes straight home
    for (const Message& m : messages) {
      if (m.receive != receive) continue;
      int64_t at = 0;
      do {
        const int piece = static_cast<int>(std::min(message_bytes_, m.bytes - at));
        MPI_Request request = MPI_REQUEST_NULL;
        if (receive)
          check_mpi(MPI_Irecv(m.data + at, piece, MPI_BYTE, m.peer, tag, comm_, &request),
                    "MPI_Irecv");
        else
          check_mpi(MPI_Isend(m.data + at, piece, MPI_BYTE, m.peer, tag, comm_, &request),
                    "MPI_Isend");
        pending.requests.push_back(request);
        pending.entries.push_back({m.peer, receive});
        at += piece;
      } while (at < m.bytes);
    }
  }
  BackOff back_off;
  std::vector<int> indices(pending.requests.size());
  const int count = static_cast<int>(pending.requests.size());
  for (int open = count; open > 0;) {
    int finished = 0;
    check_mpi(MPI_Testsome(count, pending.requests.data(), &finished, indices.data(),
                           MPI_STATUSES_IGNORE),
              "MPI_Testsome");
    if (finished > 0 && finished != MPI_UNDEFINED) {
      open -= finished;
      back_off.reset();
      continue;
    }
    watch.check([&] { return pending.missing(); });
    back_off.pause();
  }
}

void MpiTransport::all_gather(const Operation& op, const Watch& watch) {
  const int64_t bytes = op.count * op.element_bytes;
  char* const own = op.out_data + rank_ * bytes;
  if (own != op.in_data) std::memcpy(own, op.in_data, static_cast<size_t>(bytes));
  std::vector<Message> messages;
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
    messages.push_back({op.out_data + from * bytes, bytes, from, true});
    messages.push_back({own, bytes, to, false});
  }
  exchange(messages, collective_tag(op), op, watch);
}

void MpiTransport::reduce_scatter(const Operation& op, const Watch& watch) {
  const int64_t most = std::max<int64_t>(1, kScratchBytes / (size_ * op.element_bytes));
  const int64_t room = std::min(most, op.count);
  scratch_ = std::make_shared<std::vector<char>>(size_ * room * op.element_bytes);
  const int64_t out_bytes = element_size(op.out_dtype);
  std::vector<const void*> sources(size_);
  for (int64_t at = 0; at < op.count; at += room) {
    const int64_t n = std::min(room, op.count - at);
    const auto input = [&](int slice) {
      return const_cast<char*>(op.in_data) + (slice * op.count + at) * op.element_bytes;
    };
    std::vector<Message> messages;
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
      char* const place = scratch_->data() + from * room * op.element_bytes;
      messages.push_back({place, n * op.element_bytes, from, true});
      messages.push_back({input(to), n * op.element_bytes, to, false});
      sources[from] = place;
    }
    sources[rank_] = input(rank_);
    exchange(messages, collective_tag(op), op, watch);
    reduce_ranks(op.out_data + at * out_bytes, op.out_dtype, sources.data(), op.dtype, size_, n,
                 ReduceOp::kSum);
  }
  scratch_.reset();
}

// Small: everybody gets everything and reduces it. Large, a chunk at a time: slice r of the chunk
// goes to rank r, which reduces it and sends the result to all.
void MpiTransport::all_reduce(const Operation& op, const Watch& watch) {
  const bool at_once = op.count * op.element_bytes <= kAtOnceBytes;
  const int64_t most = std::max<int64_t>(1, kScratchBytes / (size_ * op.element_bytes));
  const int64_t room = at_once ? op.count : std::min(most, (op.count + size_ - 1) / size_);
  scratch_ = std::make_shared<std::vector<char>>(size_ * room * op.element_bytes);
  std::vector<const void*> sources(size_);
  const auto data = [&](int64_t at) { return op.out_data + at * op.element_bytes; };
  const auto place = [&](int peer) { return scratch_->data() + peer * room * op.element_bytes; };

  const int64_t span = at_once ? op.count : room * size_;
  for (int64_t begin = 0; begin < op.count; begin += span) {
    const int64_t end = std::min(op.count, begin + span);
    const auto at = [&](int slice) { return at_once ? 0 : std::min(end, begin + slice * room); };
    const auto length = [&](int slice) {
      return at_once ? op.count : std::min(end, at(slice) + room) - at(slice);
    };
    std::vector<Message> inputs, results;
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
      const int64_t own_bytes = length(rank_) * op.element_bytes;
      inputs.push_back({place(from), own_bytes, from, true});
      inputs.push_back({data(at(to)), length(to) * op.element_bytes, to, false});
      results.push_back({data(at(from)), length(from) * op.element_bytes, from, true});
      results.push_back({data(at(rank_)), own_bytes, to, false});
      sources[from] = place(from);
    }
    sources[rank_] = data(at(rank_));
    exchange(inputs, collective_tag(op), op, watch);
    reduce_ranks(data(at(rank_)), op.dtype, sources.data(), op.dtype, size_, length(rank_),
                 op.reduce);
    if (!at_once) exchange(results, collective_tag(op), op, watch);
  }
  scratch_.reset();
}

// A binomial tree: in round k, the ranks below 2^k (counted from the root) serve those above.
void MpiTransport::broadcast(const Operation& op, const Watch& watch) {
  const int64_t bytes = op.count * op.element_bytes;
  const int place = (rank_ + size_ - op.peer) % size_;
  const auto rank_at = [&](int other) { return (other + op.peer) % size_; };
  int reach = 1;
  if (place > 0) {
    while (reach * 2 <= place) reach *= 2;
    exchange({{op.out_data, bytes, rank_at(place - reach), true}}, collective_tag(op), op, watch);
    reach *= 2;
  }
  std::vector<Message> children;
  for (; place + reach < size_; reach *= 2)
    children.push_back({op.out_data, bytes, rank_at(place + reach), false});
  exchange(children, collective_tag(op), op, watch);
}

void MpiTransport::all_to_all(const Operation& op, const Watch& watch) {
  const int64_t bytes = op.count * op.element_bytes;
  std::memcpy(op.out_data + rank_ * bytes, op.in_data + rank_ * bytes, static_cast<size_t>(bytes));
  std::vector<Message> messages;
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
    messages.push_back({op.out_data + from * bytes, bytes, from, true});
    messages.push_back({const_cast<char*>(op.in_data) + to * bytes, bytes, to, false});
  }
  exchange(messages, collective_tag(op), op, watch);
}

void MpiTransport::send(const Operation& op, const Watch& watch) {
  const int64_t bytes = op.count * op.element_bytes;
  exchange({{const_cast<char*>(op.in_data), bytes, op.peer, false}}, kPointToPointTag, op, watch);
}

void MpiTransport::recv(const Operation& op, const Watch& watch) {
  const int64_t bytes = op.count * op.element_bytes;
  exchange({{op.out_data, bytes, op.peer, true}}, kPointToPointTag, op, watch);
}

// Dissemination (Hensgen, Finkel, Manber 1988): after round k each rank knows of 2^(k+1) arrivals.
void MpiTransport::barrier(const Operation& op, const Watch& watch) {
  for (int reach = 1; reach < size_; reach *= 2)
    exchange({{nullptr, 0, (rank_ + size_ - reach) % size_, true},
              {nullptr, 0, (rank_ + reach) % size_, false}},
             collective_tag(op), op, watch);
}

}  // namespace tessera
