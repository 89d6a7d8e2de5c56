#include "parallel/comm/nccl/nccl_communicator.h"

#include <ATen/ATen.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <exception>
#include <utility>

#include "base/error.h"
#include "parallel/comm/core/group_context.h"
#include "parallel/comm/nccl/nccl_watch.h"

namespace tessera {
namespace {

// What all groups of one world have in common.
struct World {
  Device device;
  NcclOptions options;
  std::shared_ptr<NcclWatch> watch;
};

WaitLimits limits_of(const NcclOptions& options) {
  return {options.timeout, options.file_timeout};
}

// What the GPUs' groups share with those of the host.
WorldState state_of(const Communicator& host) {
  return {.abort = host.abort_state(), .record = host.record()};
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, World world,
                   std::unique_ptr<NcclHandle> handle)
      : Communicator(host->rank(), host->size(), host->name(), host->rank_names()),
        host_(std::move(host)),
        world_(std::move(world)),
        queue_(std::make_shared<NcclQueue>(
            make_group_context(name() + " on GPUs", rank(), rank_names(), limits_of(world_.options),
                               state_of(*host_)),
            world_.device, std::move(handle))),
        exceptions_at_birth_(std::uncaught_exceptions()) {
    world_.watch->add(queue_);
  }

  ~NcclCommunicator() override {
    // An unwinding rank must not wait for peers that may never come.
    queue_->close(std::uncaught_exceptions() == exceptions_at_birth_);
  }

  at::Device device() const override { return world_.device.torch_device(); }
  bool on_one_node() const override { return host_->on_one_node(); }

  Work start(Operation op) override {
    return on_host(op) ? host_->start(std::move(op)) : queue_->submit(std::move(op));
  }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    // The host's first: it checks the color, and with its time-out every rank is known to be here.
    auto host = host_->split(color, key, std::move(name));
    auto handle = queue_->split(color, key);
    return std::make_unique<NcclCommunicator>(std::move(host), world_, std::move(handle));
  }

  std::unique_ptr<Communicator> host_group(std::string name) override {
    return host_->host_group(std::move(name));
  }

  void abort(const std::string& reason) override {
    host_->abort(reason);
    world_.watch->abort_all();
  }
  const std::shared_ptr<AbortState>& abort_state() const override { return host_->abort_state(); }
  const std::shared_ptr<CommRecord>& record() const override { return host_->record(); }

 private:
  // Tensors of the CPU, and a barrier.
  static bool on_host(const Operation& op) {
    const at::Tensor& tensor = op.in.defined() ? op.in : op.out;
    return !tensor.defined() || tensor.is_cpu();
  }

  std::unique_ptr<Communicator> host_;
  World world_;
  std::shared_ptr<NcclQueue> queue_;
  int exceptions_at_birth_;
};

void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) fail("comm", "{} failed: {}", call, cudaGetErrorString(code));
}

void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) fail("comm", "{} failed: {}", call, ncclGetErrorString(result));
}

// NCCL would stop with a message about "duplicate GPU" on some ranks and wait on others.
void check_one_rank_per_gpu(Communicator& host, const Device& device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device.torch_device().index()),
             "cudaGetDeviceProperties");
  constexpr int64_t kBytes = sizeof(properties.uuid);
  const auto mine = at::empty({kBytes}, at::kByte);
  std::memcpy(mine.data_ptr(), &properties.uuid, sizeof(properties.uuid));
  const auto all = at::empty({host.size(), kBytes}, at::kByte);
  host.all_gather(all, mine).block();
  for (int second = 0; second < host.size(); ++second)
    for (int first = 0; first < second; ++first)
      if (at::equal(all[first], all[second]))
        fail_user("comm",
                  "{} and {} use the same GPU; NCCL wants one each: start at most as many ranks on "
                  "a node as it has GPUs, each with another number ({} has {})",
                  host.rank_text(first), host.rank_text(second), host.rank_text(host.rank()),
                  device.name());
}

ncclUniqueId share_unique_id(Communicator& host) {
  ncclUniqueId id{};
  if (host.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const auto bytes = at::empty({static_cast<int64_t>(sizeof(id))}, at::kByte);
  std::memcpy(bytes.data_ptr(), &id, sizeof(id));
  host.broadcast(bytes, 0).block();
  std::memcpy(&id, bytes.const_data_ptr(), sizeof(id));
  return id;
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_world(std::unique_ptr<Communicator> host,
                                              const Device& device, NcclOptions options) {
  if (device.is_cpu())
    fail("comm", "{}: NCCL connects GPUs, not {}; use the MPI world as it is", host->name(),
         device.name());
  device.set_current();
  check_one_rank_per_gpu(*host, device);
  const ncclUniqueId id = share_unique_id(*host);
  const std::atomic<bool> closing{false};
  const GroupContext group{.name = host->name(),
                           .rank = host->rank(),
                           .ranks = host->rank_names(),
                           .limits = limits_of(options),
                           .world = state_of(*host)};
  const Watch watch(group, "connecting the GPUs", closing);
  auto handle = NcclHandle::connect(id, host->rank(), host->size(), watch);
  return std::make_unique<NcclCommunicator>(
      std::move(host), World{device, options, std::make_shared<NcclWatch>(device)},
      std::move(handle));
}

}  // namespace tessera
