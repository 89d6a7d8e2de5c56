#include "training/engine/save_staging.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/process/available_memory.h"
#include "base/process/process_identity.h"
#include "base/text/quantities.h"
#include "base/xxh3.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// What a save in line with training copies through from a GPU, and the least of a ring.
constexpr int64_t kSmallest = 64 * kMiB;
constexpr int64_t kBesideMomentsOnDisk = 256 * kMiB;

int64_t ranks_on_this_host(Communicator& world) {
  const std::string host = ProcessIdentity::own().host;
  at::Tensor own =
      at::full({1}, static_cast<int64_t>(xxh3_64(host.data(), host.size())), at::kLong);
  at::Tensor all = at::empty({world.size()}, at::kLong);
  world.all_gather(all, own).wait();
  return (all == own).sum().item<int64_t>();
}

// What this rank can have of the host's memory.
int64_t share_of_host(Communicator& world) {
  const int64_t available = available_memory() / 2 / ranks_on_this_host(world);
  return available == 0 ? std::numeric_limits<int64_t>::max() : std::max(available, kSmallest);
}

// Copies from the device on a stream of its own, which sees what was computed before.
CopyOut copy_out_of(const Device& device) {
  if (device.is_cpu()) return {};
  return
      [device, stream = device.new_stream()](std::byte* to, const std::byte* from, int64_t bytes) {
        Event computed = device.new_event();
        computed.record(device.current_stream());
        stream.wait(computed);
        const StreamScope scope(stream);
        const auto options = at::TensorOptions().dtype(at::kByte);
        auto* source = const_cast<std::byte*>(from);  // from_blob has no form for what is only read
        at::from_blob(to, {bytes}, options)
            .copy_(at::from_blob(source, {bytes}, options.device(device.torch_device())),
                   /*non_blocking=*/true);
        stream.synchronize();
      };
}

}  // namespace

bool saves_beside(const CheckpointSection& checkpoint) {
  return checkpoint.async && checkpoint.every > 0;
}

int64_t save_staging_bytes(const Config& config, int64_t own_bytes) {
  if (!saves_beside(config.checkpoint)) return config.device == "cpu" ? 0 : kSmallest;
  const int64_t asked = config.checkpoint.staging_mib * kMiB;
  if (asked != 0) return std::min(asked, own_bytes);
  return config.memory.offload_dir.empty() ? own_bytes : std::min(own_bytes, kBesideMomentsOnDisk);
}

MemoryClass save_staging_class(bool on_gpu) {
  return on_gpu ? MemoryClass::kOffloadHost : MemoryClass::kSnapshot;
}

SaveStaging::SaveStaging(const Config& config, const Device& device, int64_t own_bytes,
                         Communicator& world)
    : beside_(saves_beside(config.checkpoint)), device_(device) {
  int64_t bytes = save_staging_bytes(config, own_bytes);
  if (beside_) {
    if (config.checkpoint.staging_mib == 0) bytes = std::min(bytes, share_of_host(world));
    if (bytes < own_bytes)
      note_ = fmt::format(
          "a save copies {} of rank 0 through {} of memory (checkpoint.staging_mib), so the loop "
          "waits while most of it is written",
          bytes_text(own_bytes), bytes_text(bytes));
    bytes = std::max<int64_t>(bytes, 1);
  }
  memory_ = device.zeros_pinned({bytes}, at::kByte);
}

CheckpointSaver::Staging SaveStaging::staging() const {
  return {.beside = beside_,
          .memory = {static_cast<std::byte*>(memory_.mutable_data_ptr()),
                     static_cast<size_t>(memory_.numel())},
          .copy_out = copy_out_of(device_)};
}

void SaveStaging::add_to(MemoryLedger& ledger) const {
  ledger.add(save_staging_class(!device_.is_cpu()), bytes());
}

}  // namespace tessera
