#pragma once

#include <memory>
#include <utility>

namespace tessera {

// clang-format off
// Streams and events order work on a GPU without the host waiting for any of it. What is started on
// one stream runs in order; different streams run side by side, except where one waits for an event
// that was recorded on another. On the host everything runs at once, in the order of the program,
// so that each of these calls does nothing and callers need no `if`.
//
// The lines of a training step on a GPU. Each wait is one event: recorded on the stream that is waited
// for, waited for on the stream that waits.
//
//   compute   | stage 0      | stage 1        | stage 2 ...
//   gather    | stage 1      | stage 2, when its slot was released by `compute`
//   reduce                   | gradients of the stage whose backward `compute` has finished
//   copy      | offloaded shards to the device before their update; another line takes them back
//
// (A micro-batch is small and is copied on `compute`, where it is used.)
//
//   gather after compute    released.record(compute);  gather.wait(released);  start the gather
//   compute after gather    work.wait(), or done.record(gather);  compute.wait(done)
//   reduce after compute    filled.record(compute);    reduce.wait(filled);    start the reduce
//   copy, compute after it  { StreamScope scope(copy);  x.copy_(pinned, /*non_blocking=*/true); }
//                           copied.record(copy);       compute.wait(copied)
//
// A communicator's operation comes after what the calling thread's current stream holds when it is
// started: inside `StreamScope scope(gather)` it waits for `released` alone, and so overtakes the
// computation that the host has queued already. Memory that one stream frees while another still uses
// it must be kept until an event says so: LibTorch's allocator knows only the stream that it was
// allocated on.
// clang-format on

enum class StreamPriority { kNormal, kHigh };

class Event;

// A line of work on a device; cheap to copy, a copy is the same line. Default-made: the host's.
class Stream {
 public:
  class Gpu {
   public:
    virtual ~Gpu() = default;
    virtual void wait(const Event& event) = 0;
    virtual void synchronize() const = 0;
    virtual bool idle() const = 0;
    virtual void* handle() const = 0;
    // Makes this the calling thread's stream until the returned object goes.
    virtual std::shared_ptr<void> enter() const = 0;
  };

  Stream() = default;
  explicit Stream(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}

  // What is started here from now on runs after what `event` was recorded behind.
  void wait(const Event& event) const {
    if (gpu_) gpu_->wait(event);
  }
  // The host waits until all that was started here is done.
  void synchronize() const {
    if (gpu_) gpu_->synchronize();
  }
  bool idle() const { return !gpu_ || gpu_->idle(); }

  // The cudaStream_t; null on the host. For code that is only built with CUDA.
  void* handle() const { return gpu_ ? gpu_->handle() : nullptr; }

 private:
  friend class StreamScope;
  friend class Event;
  std::shared_ptr<Gpu> gpu_;
};

// A point in a stream's work. A default-made event, or one never recorded, counts as passed.
class Event {
 public:
  class Gpu {
   public:
    virtual ~Gpu() = default;
    virtual void record(const Stream::Gpu& stream) = 0;
    virtual void synchronize() const = 0;
    virtual bool passed() const = 0;
  };

  Event() = default;
  explicit Event(std::unique_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}

  // Puts the event behind all that was started on `stream` so far. It may be recorded again: who
  // waits for it waits for the last record before the wait.
  void record(const Stream& stream) {
    if (gpu_ && stream.gpu_) gpu_->record(*stream.gpu_);
  }
  // The host waits.
  void synchronize() const {
    if (gpu_) gpu_->synchronize();
  }
  // Whether it has been reached; does not wait.
  bool passed() const { return !gpu_ || gpu_->passed(); }

  const Gpu* gpu() const { return gpu_.get(); }

 private:
  std::unique_ptr<Gpu> gpu_;
};

// Makes a stream (and its device) the calling thread's until the scope ends.
class StreamScope {
 public:
  explicit StreamScope(const Stream& stream) {
    if (stream.gpu_) entered_ = stream.gpu_->enter();
  }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  std::shared_ptr<void> entered_;
};

}  // namespace tessera
