#include "parallel/comm/core/checked_communicator.h"

#include <ATen/ATen.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "parallel/comm/core/queued_communicator.h"

namespace tessera {
namespace {

// Longer than any time-out of the communicator below, whose own error comes first.
constexpr std::chrono::hours kNoTimeout{24 * 365};
constexpr WaitLimits kNoLimits{kNoTimeout, kNoTimeout};

// A call as numbers, so that it can travel.
constexpr int64_t kFields = 7;
using Record = std::array<int64_t, kFields>;

Record record_of(const Operation& op, uint64_t number) {
  return {static_cast<int64_t>(op.kind),
          static_cast<int64_t>(op.dtype),
          static_cast<int64_t>(op.out_dtype),
          op.count,
          op.peer,
          static_cast<int64_t>(op.reduce),
          static_cast<int64_t>(number)};
}

std::string text_of(const int64_t* record) {
  Operation op;
  op.kind = static_cast<OperationKind>(record[0]);
  op.dtype = static_cast<at::ScalarType>(record[1]);
  op.out_dtype = static_cast<at::ScalarType>(record[2]);
  op.count = record[3];
  op.peer = static_cast<int>(record[4]);
  op.reduce = static_cast<ReduceOp>(record[5]);
  return op.text();
}

// Compares the calls, then passes the operation on. It has a queue of its own above it, so checked
// operations are as asynchronous as unchecked ones.
class CheckedTransport final : public Transport {
 public:
  explicit CheckedTransport(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  Communicator& inner() { return *inner_; }

  void run(const Operation& op, const Watch& watch) override {
    try {
      if (op.kind == OperationKind::kSend || op.kind == OperationKind::kRecv)
        compare_pair(op);
      else
        compare_all(op);
    } catch (const Mismatch& mismatch) {
      throw Error(mismatch.text);
    } catch (const Error& e) {
      throw Error(fmt::format("{} could not be compared with the other ranks' calls: {}",
                              watch.head(), e.what()));
    }
    inner_->start(op).block();
  }

 private:
  struct Mismatch {
    std::string text;
  };

  // Starts an operation on the inner communicator with `op`'s limit of waiting, not that of this
  // moment: the caller may have ended its file work since it started `op`.
  Work start_for(const Operation& op, Operation of_inner) {
    of_inner.file_work = op.file_work;
    return inner_->start(std::move(of_inner));
  }

  void compare_all(const Operation& op) {
    const Record record = record_of(op, collectives_++);
    const auto mine = at::empty({kFields}, at::kLong);
    std::copy(record.begin(), record.end(), mine.mutable_data_ptr<int64_t>());
    const auto all = at::empty({inner_->size(), kFields}, at::kLong);
    start_for(op, all_gather_operation(*inner_, all, mine)).block();
    const int64_t* records = all.const_data_ptr<int64_t>();
    bool equal = true;
    for (int64_t i = kFields; i < inner_->size() * kFields; ++i)
      equal = equal && records[i] == records[i - kFields];
    if (equal) return;
    // The same text on every rank.
    std::string calls;
    for (int r = 0; r < inner_->size(); ++r)
      calls += fmt::format("{}rank {} called {} as collective #{}", r == 0 ? "" : "; ", r,
                           text_of(records + r * kFields), records[(r + 1) * kFields - 1]);
    throw Mismatch{
        fmt::format("[comm] {}: ranks disagree: {}; all ranks must start the same "
                    "operations in the same order",
                    inner_->name(), calls)};
  }

  void compare_pair(const Operation& op) {
    const Record record = record_of(op, 0);
    const auto mine = at::empty({kFields}, at::kLong);
    std::copy(record.begin(), record.end(), mine.mutable_data_ptr<int64_t>());
    const auto theirs = at::empty({kFields}, at::kLong);
    const bool sends = op.kind == OperationKind::kSend;
    const auto send = [&] { start_for(op, send_operation(*inner_, mine, op.peer)).block(); };
    if (sends) send();
    start_for(op, recv_operation(*inner_, theirs, op.peer)).block();
    if (!sends) send();
    const int64_t* a = sends ? mine.const_data_ptr<int64_t>() : theirs.const_data_ptr<int64_t>();
    const int64_t* b = sends ? theirs.const_data_ptr<int64_t>() : mine.const_data_ptr<int64_t>();
    if (a[1] == b[1] && a[3] == b[3]) return;
    throw Mismatch{
        fmt::format("[comm] {}: ranks disagree: rank {} called {}; rank {} called {}; "
                    "dtype and count must agree",
                    inner_->name(), sends ? inner_->rank() : op.peer, text_of(a),
                    sends ? op.peer : inner_->rank(), text_of(b))};
  }

  std::unique_ptr<Communicator> inner_;
  uint64_t collectives_ = 0;
};

class CheckedCommunicator final : public QueuedCommunicator {
 public:
  explicit CheckedCommunicator(std::shared_ptr<CheckedTransport> transport)
      : QueuedCommunicator(transport->inner().rank(), transport->inner().size(),
                           transport->inner().name(), kNoLimits, transport,
                           transport->inner().abort_state()),
        transport_(std::move(transport)) {}

  bool on_one_node() const override { return transport_->inner().on_one_node(); }

  // The barrier empties this queue: only one thread at a time may use the inner communicator.
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    barrier().block();
    return make_checked(transport_->inner().split(color, key, std::move(name)));
  }

  std::unique_ptr<Communicator> host_group(std::string name) override {
    barrier().block();
    return make_checked(transport_->inner().host_group(std::move(name)));
  }

  void abort(const std::string& reason) override { transport_->inner().abort(reason); }

 private:
  std::shared_ptr<CheckedTransport> transport_;
};

}  // namespace

std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner) {
  return std::make_unique<CheckedCommunicator>(
      std::make_shared<CheckedTransport>(std::move(inner)));
}

}  // namespace tessera
