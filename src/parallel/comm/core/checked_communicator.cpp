#include "parallel/comm/core/checked_communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/comm/core/call_record.h"
#include "parallel/comm/core/queued_communicator.h"

namespace tessera {
namespace {

// Longer than any time-out of the communicator below, whose own error comes first.
constexpr std::chrono::hours kNoTimeout{24 * 365};
constexpr WaitLimits kNoLimits{kNoTimeout, kNoTimeout};

constexpr auto kFields = static_cast<int64_t>(std::tuple_size_v<CallRecord>);

at::Tensor as_tensor(const CallRecord& call) {
  const auto tensor = at::empty({kFields}, at::kLong);
  std::copy(call.begin(), call.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

CallRecord from_tensor(const at::Tensor& tensor) {
  CallRecord call{};
  std::copy_n(tensor.const_data_ptr<int64_t>(), call.size(), call.begin());
  return call;
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
    const auto mine = as_tensor(call_record(op, ++collectives_));
    const auto all = at::empty({inner_->size(), kFields}, at::kLong);
    start_for(op, all_gather_operation(*inner_, all, mine)).block();
    std::vector<CallRecord> calls;
    for (int r = 0; r < inner_->size(); ++r) calls.push_back(from_tensor(all[r]));
    const auto same = [&](const CallRecord& call) { return call == calls[0]; };
    if (!std::all_of(calls.begin(), calls.end(), same))
      throw Mismatch{disagreement(inner_->name(), calls, ranks())};
  }

  void compare_pair(const Operation& op) {
    const CallRecord own = call_record(op, 0);
    const auto mine = as_tensor(own), theirs = at::empty({kFields}, at::kLong);
    const bool sends = op.kind == OperationKind::kSend;
    const auto send = [&] { start_for(op, send_operation(*inner_, mine, op.peer)).block(); };
    if (sends) send();
    start_for(op, recv_operation(*inner_, theirs, op.peer)).block();
    if (!sends) send();
    const CallRecord other = from_tensor(theirs);
    if (own[1] == other[1] && own[3] == other[3]) return;  // dtype and count
    throw Mismatch{
        fmt::format("[comm] {}: ranks disagree: {} called {}; {} called {}; "
                    "dtype and count must agree",
                    inner_->name(), inner_->rank_text(sends ? inner_->rank() : op.peer),
                    call_text(sends ? own : other, ranks()),
                    inner_->rank_text(sends ? op.peer : inner_->rank()),
                    call_text(sends ? other : own, ranks()))};
  }

  const RankNames& ranks() const { return *inner_->rank_names(); }

  std::unique_ptr<Communicator> inner_;
  uint64_t collectives_ = 0;
};

class CheckedCommunicator final : public QueuedCommunicator {
 public:
  explicit CheckedCommunicator(std::shared_ptr<CheckedTransport> transport)
      : QueuedCommunicator(context_of(transport->inner()), transport),
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
  // Without a record of its own: that of the group below shows the calls, and the comparisons
  // between them.
  static GroupContext context_of(const Communicator& inner) {
    return {.name = inner.name(),
            .rank = inner.rank(),
            .ranks = inner.rank_names(),
            .limits = kNoLimits,
            .world = {.abort = inner.abort_state(), .record = inner.record()}};
  }

  std::shared_ptr<CheckedTransport> transport_;
};

}  // namespace

std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner) {
  return std::make_unique<CheckedCommunicator>(
      std::make_shared<CheckedTransport>(std::move(inner)));
}

}  // namespace tessera
