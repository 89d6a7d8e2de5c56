#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/comm/core/transport.h"

namespace tessera {

// One NCCL communicator, in NCCL's non-blocking mode: a call that would wait for a peer returns "in
// progress" and is asked again between the checks of a Watch. So a missing peer ends in our own
// message at our own time-out, even while ranks connect (when there is no event yet on which to
// time out). And since no call holds the lock for long, any thread can abort at any time.
class NcclHandle {
 public:
  // Collective over the ranks that got `id`. The calling thread's device is the communicator's.
  static std::unique_ptr<NcclHandle> connect(const ncclUniqueId& id, int rank, int size,
                                             const Watch& watch);
  ~NcclHandle() { abort(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Collective: ranks of equal color, ordered by key.
  std::unique_ptr<NcclHandle> split(int color, int key, const Watch& watch);

  // Calls `enqueue` and returns when NCCL has put all of it on its streams, so that an event
  // recorded afterwards is behind it. Throws Error if NCCL refuses, at the time-out and after an
  // abort.
  void run(const std::function<ncclResult_t(ncclComm_t)>& enqueue, const Watch& watch);

  // What went wrong since, on the GPU or in the network; empty if nothing did. Never waits.
  std::string async_error();

  // The orderly end, after all operations. Collective.
  void finalize(const Watch& watch);

  // The end after a failure: running operations end too. No peer takes part. May be called from any
  // thread, any number of times.
  void abort() noexcept;

 private:
  NcclHandle() = default;
  // The communicator, with the lock held; throws after an abort.
  ncclComm_t alive(const Watch& watch) const;
  void settle(ncclResult_t result, const Watch& watch);
  std::string text(ncclResult_t result) const;

  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
};

// What waiting loops do between two looks: at first give way, then sleep.
void pause_between_looks(int round);

}  // namespace tessera
