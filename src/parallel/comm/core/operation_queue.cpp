#include "parallel/comm/core/operation_queue.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/process/start_thread.h"

namespace tessera {

class OperationQueue::Task : public Work::State {
 public:
  Task(std::shared_ptr<OperationQueue> queue, Operation op)
      : operation(std::move(op)), queue_(std::move(queue)) {}

  void block() override {
    if (!finished.load(std::memory_order_acquire)) queue_->block(*this);
    if (!error.empty()) throw Error(error);
  }
  bool done() const override { return finished.load(std::memory_order_acquire); }
  double seconds() const override { return done() ? duration.count() : 0.0; }

  Operation operation;
  std::chrono::duration<double> duration{0};  // written before finished
  std::string error;                          // written before finished
  std::atomic<bool> finished{false};

 private:
  std::shared_ptr<OperationQueue> queue_;
};

OperationQueue::OperationQueue(GroupContext group, std::shared_ptr<Transport> transport)
    : group_(std::move(group)), transport_(std::move(transport)) {}

OperationQueue::~OperationQueue() = default;

Work OperationQueue::submit(Operation op) {
  auto task = std::make_shared<Task>(shared_from_this(), std::move(op));
  {
    std::lock_guard lock(mutex_);
    // The worker shares ownership of the queue, so one that is left behind never outlives what it
    // uses. It is started before the task is added: if that fails, nothing has been submitted.
    if (!worker_.joinable())
      worker_ = start_thread("communication", [self = shared_from_this()] { self->work(); });
    task->operation.sequence = ++last_sequence_;
    tasks_.push_back(task);
    if (group_.record) group_.record->queued(task->operation);
  }
  submitted_.notify_one();
  return Work(std::move(task));
}

void OperationQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [&] { return closed_ || (!busy_ && !tasks_.empty()); });
    if (closed_) break;
    run_front(lock);
  }
  worker_left_ = true;
  changed_.notify_all();
}

void OperationQueue::block(Task& task) {
  std::unique_lock lock(mutex_);
  while (!task.done()) {
    if (!busy_ && !tasks_.empty())
      run_front(lock);
    else
      changed_.wait(lock);
  }
}

void OperationQueue::run_front(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Task> task = std::move(tasks_.front());
  tasks_.pop_front();
  busy_ = true;
  std::string error = failure_;
  lock.unlock();
  const auto start = std::chrono::steady_clock::now();
  if (error.empty()) {
    const Watch watch(group_, task->operation, closing_);
    if (group_.record) group_.record->running(task->operation, start);
    try {
      watch.check([] { return Awaited{{}, "it was never started"}; });
      transport_->run(task->operation, watch);
    } catch (const Error& e) {
      error = e.what();
    } catch (const std::exception& e) {
      error = fmt::format("{} failed: {}", watch.head(), e.what());
    }
  }
  const auto end = std::chrono::steady_clock::now();
  task->duration = end - start;
  if (group_.record && error.empty()) group_.record->done(task->operation, end);
  // Tensors go before anyone may learn that the operation is done, and outside the lock.
  task->operation.out = at::Tensor();
  task->operation.in = at::Tensor();
  lock.lock();
  busy_ = false;
  if (failure_.empty()) failure_ = error;
  finish(*task, error);
  if (!tasks_.empty()) submitted_.notify_one();
}

void OperationQueue::finish(Task& task, const std::string& error) {
  task.error = error;
  task.finished.store(true, std::memory_order_release);
  changed_.notify_all();
}

void OperationQueue::close(bool orderly) {
  constexpr std::chrono::milliseconds kPatience{500};
  std::unique_lock lock(mutex_);
  while (orderly && failure_.empty() && !group_.world.abort->raised() &&
         (busy_ || !tasks_.empty())) {
    if (!busy_)
      run_front(lock);
    else
      changed_.wait(lock);
  }
  // One that was given up is shown on: its state says why.
  if (group_.record && orderly && failure_.empty() && !busy_ && tasks_.empty())
    group_.record->close();
  closed_ = true;
  closing_.store(true);
  for (const auto& task : std::exchange(tasks_, {}))
    finish(*task, fmt::format("[comm] {}: {} #{} on {} was given up: the communicator is gone",
                              group_.name, task->operation.text(*group_.ranks),
                              task->operation.sequence, group_.self()));
  submitted_.notify_all();
  if (!worker_.joinable()) return;
  const bool left = changed_.wait_for(lock, kPatience, [&] { return worker_left_; });
  lock.unlock();
  if (left)
    worker_.join();
  else
    worker_.detach();
}

}  // namespace tessera
