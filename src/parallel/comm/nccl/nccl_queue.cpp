#include "parallel/comm/nccl/nccl_queue.h"

#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "kernels/kernels.h"

namespace tessera {
namespace {

constexpr size_t kMaxRunning = 1024;

ncclDataType_t nccl_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return ncclFloat64;
    case at::kFloat:
      return ncclFloat32;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    case at::kLong:
      return ncclInt64;
    case at::kInt:
      return ncclInt32;
    case at::kByte:
      return ncclUint8;
    default:
      fail("comm", "NCCL is not told of dtype {}", at::toString(dtype));
  }
}

ncclRedOp_t nccl_reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
  }
  return ncclSum;
}

}  // namespace

class NcclQueue::Task final : public Work::State {
 public:
  Task(std::shared_ptr<NcclQueue> queue, Operation op, Event event)
      : operation(std::move(op)), done_event(std::move(event)), queue_(std::move(queue)) {}

  void wait() override {
    queue_->check_usable(queue_->watch_of(operation));
    queue_->device_.current_stream().wait(done_event);
  }
  void block() override { queue_->block(*this); }
  // A GPU that reports an error runs nothing any more; block() says what it was.
  bool done() const override {
    try {
      return done_event.passed();
    } catch (const Error&) {
      return true;
    }
  }

  // Releases the tensors. The queue calls this while others may still hold the task.
  void let_go() {
    operation.out = at::Tensor();
    operation.in = at::Tensor();
    slices = at::Tensor();
  }

  Operation operation;
  at::Tensor slices;  // every rank's slice, of a reduce_scatter of halves to fp32
  Event done_event;
  bool begun = false;  // in the record; guarded by the queue's lock

 private:
  std::shared_ptr<NcclQueue> queue_;
};

NcclQueue::NcclQueue(GroupContext group, const Device& device, std::unique_ptr<NcclHandle> handle)
    : group_(std::move(group)),
      size_(static_cast<int>(group_.ranks->world_ranks().size())),
      device_(device),
      stream_(device.new_stream(StreamPriority::kHigh)),
      handle_(std::move(handle)),
      ready_(device.new_event()) {}

Watch NcclQueue::watch_of(const Operation& op) const {
  return Watch(group_, op, closing_);
}

Work NcclQueue::submit(Operation op) {
  op.sequence = ++last_sequence_;
  check_usable(watch_of(op));
  release_finished();
  std::shared_ptr<Task> oldest;
  {
    std::lock_guard lock(mutex_);
    if (running_.size() >= kMaxRunning) oldest = running_.front();
  }
  if (oldest) block(*oldest);
  auto task = std::make_shared<Task>(shared_from_this(), std::move(op), device_.new_event());
  const Watch watch = watch_of(task->operation);
  {
    std::lock_guard lock(mutex_);
    group_.record->queued(task->operation);
    if (running_.empty()) note_begun(*task);  // NCCL may wait for peers before it starts the first
  }
  try {
    start(*task, watch);
  } catch (const std::exception& e) {
    const bool ours = dynamic_cast<const Error*>(&e) != nullptr;
    const std::string error =
        ours ? e.what() : fmt::format("{} failed: {}", watch.head(), e.what());
    give_up(error);
    drain();  // part of it may be running, and the caller may free the memory now
    throw Error(error);
  }
  std::lock_guard lock(mutex_);
  if (running_.empty()) oldest_waited_ = {};
  running_.push_back(task);
  note_begun(*running_.front());
  return Work(std::move(task));
}

void NcclQueue::start(Task& task, const Watch& watch) {
  const Operation& op = task.operation;
  ready_.record(device_.current_stream());
  stream_.wait(ready_);
  const StreamScope scope(stream_);  // `slices` is allocated on it and the sum runs on it
  const bool sums_here = op.kind == OperationKind::kReduceScatter && op.out_dtype != op.dtype;
  if (sums_here) task.slices = device_.empty({size_ * op.count}, op.dtype);
  handle_->run([&](ncclComm_t comm) { return enqueue(task, comm); }, watch);
  if (sums_here) kernels::sum_slices(op.out, task.slices);
  task.done_event.record(stream_);
}

ncclResult_t NcclQueue::enqueue(const Task& task, ncclComm_t comm) const {
  const Operation& op = task.operation;
  const auto stream = static_cast<cudaStream_t>(stream_.handle());
  const ncclDataType_t type = nccl_type(op.dtype);
  const auto count = static_cast<size_t>(op.count);
  switch (op.kind) {
    case OperationKind::kAllGather:
      return ncclAllGather(op.in_data, op.out_data, count, type, comm, stream);
    case OperationKind::kReduceScatter:
      if (task.slices.defined())
        return exchange_slices(op, static_cast<char*>(task.slices.data_ptr()), comm);
      return ncclReduceScatter(op.in_data, op.out_data, count, type, ncclSum, comm, stream);
    case OperationKind::kAllReduce:
      return ncclAllReduce(op.out_data, op.out_data, count, type, nccl_reduction(op.reduce), comm,
                           stream);
    case OperationKind::kBroadcast:
      return ncclBroadcast(op.out_data, op.out_data, count, type, op.peer, comm, stream);
    case OperationKind::kAllToAll:
      return exchange_slices(op, op.out_data, comm);
    case OperationKind::kSend:
      return ncclSend(op.in_data, count, type, op.peer, comm, stream);
    case OperationKind::kRecv:
      return ncclRecv(op.out_data, count, type, op.peer, comm, stream);
    case OperationKind::kBarrier:
      break;
  }
  fail("comm", "{}: a barrier has no data for the GPU", group_.name);
}

// out slice i <- rank i's in slice of this rank. One group call: NCCL runs sends and receives at
// once.
ncclResult_t NcclQueue::exchange_slices(const Operation& op, char* out, ncclComm_t comm) const {
  const auto stream = static_cast<cudaStream_t>(stream_.handle());
  const ncclDataType_t type = nccl_type(op.dtype);
  const auto count = static_cast<size_t>(op.count);
  const int64_t bytes = op.count * op.element_bytes;
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  // The first error stays, but the group is ended whatever happens.
  const auto keep_going = [&](ncclResult_t next) {
    if (result == ncclSuccess || result == ncclInProgress) result = next;
  };
  for (int peer = 0; peer < size_; ++peer) {
    keep_going(ncclSend(op.in_data + peer * bytes, count, type, peer, comm, stream));
    keep_going(ncclRecv(out + peer * bytes, count, type, peer, comm, stream));
  }
  keep_going(ncclGroupEnd());
  return result;
}

std::unique_ptr<NcclHandle> NcclQueue::split(int color, int key) {
  const Watch watch(group_, "split", closing_);
  check_usable(watch);
  const StreamScope scope(stream_);  // for its device
  try {
    return handle_->split(color, key, watch);
  } catch (const Error& e) {
    give_up(e.what());
    throw;
  }
}

void NcclQueue::block(Task& task) {
  const Watch watch = watch_of(task.operation);
  try {
    for (int round = 0; !task.done_event.passed(); ++round) {
      check_usable(watch);
      watch.check([] {
        return Awaited{{}, "it has not ended on the GPU: a rank did not start it, or is late"};
      });
      const std::string error = handle_->async_error();
      if (!error.empty()) throw Error(fmt::format("{} failed: {}", watch.head(), error));
      pause_between_looks(round);
    }
  } catch (const std::exception& e) {
    give_up(e.what());
    drain();  // as in submit()
    throw Error(e.what());
  }
  check_usable(watch);  // the event of an aborted operation passes as well
  release_finished();
}

void NcclQueue::check_usable(const Watch& watch) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(failure_);
  }
  if (abort_state().raised())
    throw Error(fmt::format("{} was aborted: {}", watch.head(), abort_state().reason()));
}

// With the lock held.
void NcclQueue::note_begun(Task& task) {
  if (!std::exchange(task.begun, true))
    group_.record->running(task.operation, GroupRecord::Clock::now());
}

void NcclQueue::release_finished() {
  std::lock_guard lock(mutex_);
  while (!running_.empty() && running_.front()->done_event.passed()) {
    group_.record->done(running_.front()->operation, GroupRecord::Clock::now());
    running_.front()->let_go();
    running_.pop_front();
    oldest_waited_ = {};
    if (!running_.empty()) note_begun(*running_.front());
  }
}

std::string NcclQueue::overdue() {
  std::lock_guard lock(mutex_);
  if (running_.empty()) return {};
  const Operation& op = running_.front()->operation;
  const auto limit = op.file_work ? group_.limits.file_work : group_.limits.usual;
  if (oldest_waited_.look() < limit) return {};
  return fmt::format(
      "[comm] {}: {} #{} on {} timed out: it has been the oldest on the GPU for "
      "{} ms: a rank did not start it, or what it waits for takes longer",
      group_.name, op.text(*group_.ranks), op.sequence, group_.self(), limit.count());
}

void NcclQueue::inspect() noexcept {
  try {
    release_finished();
    if (abort_state().raised()) return handle_->abort();
    std::string error = overdue();
    if (error.empty()) {
      error = handle_->async_error();
      if (error.empty()) return;
      error = fmt::format("[comm] {} on {}: {}", group_.name, group_.self(), error);
    }
    give_up(error);
    abort_state().raise(error);
  } catch (const std::exception& e) {  // the CUDA context is broken
    give_up(e.what());
    abort_state().raise(e.what());
  }
}

void NcclQueue::give_up(const std::string& error) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = error;
  }
  handle_->abort();
}

// Waits until nothing touches the tensors any more; aborted kernels end within milliseconds.
void NcclQueue::drain() noexcept {
  constexpr std::chrono::seconds kPatience{10};
  const auto end = Clock::now() + kPatience;
  try {
    while (!stream_.idle() && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    release_finished();
  } catch (const std::exception&) {
    // CUDA itself reports an error: nothing runs any more.
  }
}

void NcclQueue::close(bool orderly) noexcept {
  try {
    if (orderly) {
      const Watch watch(group_, "closing", closing_);
      check_usable(watch);
      for (int round = 0; !stream_.idle(); ++round) {
        watch.check([] { return Awaited{{}, "operations have not ended on the GPU"}; });
        pause_between_looks(round);
      }
      handle_->finalize(watch);
      group_.record->close();
    }
  } catch (const std::exception& e) {
    give_up(e.what());
  }
  closing_.store(true);
  handle_->abort();  // nothing after an orderly end
  drain();
  std::lock_guard lock(mutex_);
  if (failure_.empty())
    failure_ = fmt::format("[comm] {}: the communicator on {} is gone", group_.name, group_.self());
  running_.clear();  // tasks hold the queue
}

}  // namespace tessera
