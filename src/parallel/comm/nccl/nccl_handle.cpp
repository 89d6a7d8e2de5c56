#include "parallel/comm/nccl/nccl_handle.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tessera {

void pause_between_looks(int round) {
  constexpr int kYields = 200;
  if (round < kYields)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(round - kYields + 1, 20) * 50));
}

std::unique_ptr<NcclHandle> NcclHandle::connect(const ncclUniqueId& id, int rank, int size,
                                                const Watch& watch) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  // NCCL's own thread may write to `place` while it connects, so `place` is never freed if that
  // fails.
  auto* const place = new ncclComm_t(nullptr);
  std::unique_ptr<NcclHandle> handle(new NcclHandle);
  const ncclResult_t result = ncclCommInitRankConfig(place, size, id, rank, &config);
  handle->comm_ = *place;
  handle->settle(result, watch);
  delete place;
  return handle;
}

std::unique_ptr<NcclHandle> NcclHandle::split(int color, int key, const Watch& watch) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  auto* const place = new ncclComm_t(nullptr);  // as in connect(); NCCL fills it when both agree
  run([&](ncclComm_t comm) { return ncclCommSplit(comm, color, key, place, &config); }, watch);
  std::unique_ptr<NcclHandle> part(new NcclHandle);
  part->comm_ = *place;
  delete place;
  part->settle(ncclInProgress, watch);
  return part;
}

void NcclHandle::run(const std::function<ncclResult_t(ncclComm_t)>& enqueue, const Watch& watch) {
  ncclResult_t result = ncclSuccess;
  {
    std::lock_guard lock(mutex_);
    result = enqueue(alive(watch));
  }
  settle(result, watch);
}

ncclComm_t NcclHandle::alive(const Watch& watch) const {
  if (comm_ != nullptr) return comm_;
  watch.check([] { return Awaited{{}, "NCCL's communicator is gone"}; });
  throw Error(
      fmt::format("{}: NCCL's communicator is gone: an earlier operation failed", watch.head()));
}

void NcclHandle::settle(ncclResult_t result, const Watch& watch) {
  for (int round = 0; result == ncclInProgress; ++round) {
    watch.check([] {
      return Awaited{{}, "NCCL could not start it: a rank did not come, or cannot be reached"};
    });
    if (round > 0) pause_between_looks(round);
    std::lock_guard lock(mutex_);
    const ncclResult_t asked = ncclCommGetAsyncError(alive(watch), &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result == ncclSuccess) return;
  std::lock_guard lock(mutex_);
  throw Error(fmt::format("{} failed: {}", watch.head(), text(result)));
}

std::string NcclHandle::text(ncclResult_t result) const {
  const char* detail = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
  if (detail == nullptr || *detail == '\0')
    return fmt::format("NCCL: {}", ncclGetErrorString(result));
  return fmt::format("NCCL: {}: {}", ncclGetErrorString(result), detail);
}

std::string NcclHandle::async_error() {
  std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return {};
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) state = asked;
  return state == ncclSuccess || state == ncclInProgress ? std::string() : text(state);
}

void NcclHandle::finalize(const Watch& watch) {
  run([](ncclComm_t comm) { return ncclCommFinalize(comm); }, watch);
  std::lock_guard lock(mutex_);
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (comm != nullptr)
    static_cast<void>(ncclCommDestroy(comm));  // local, and nothing is left to do
}

void NcclHandle::abort() noexcept {
  std::lock_guard lock(mutex_);
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (comm != nullptr) static_cast<void>(ncclCommAbort(comm));  // on the way out already
}

}  // namespace tessera
