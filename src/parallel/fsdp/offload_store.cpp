#include "parallel/fsdp/offload_store.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/kernels.h"

namespace tessera {
namespace {

// Calls copy(from, to) for each state that both have, gradients only where asked.
template <typename Copy>
void for_states(const OffloadStore::States& from, const OffloadStore::States& to, bool grad,
                Copy copy) {
  copy(from.master, to.master);
  for (size_t i = 0; i < from.moments.size(); ++i) copy(from.moments[i], to.moments[i]);
  if (grad && from.grad.defined()) copy(from.grad, to.grad);
}

int64_t bytes_of(const OffloadStore::States& states) {
  int64_t bytes = 0;
  for_states(states, states, true, [&](const at::Tensor& tensor, const at::Tensor&) {
    bytes += OffloadStore::padded_bytes(static_cast<int64_t>(tensor.nbytes()));
  });
  return bytes;
}

}  // namespace

OffloadStore::OffloadStore(const Device& device, std::function<void(const std::string&)> trace)
    : device_(device),
      trace_(std::move(trace)),
      in_(device.new_stream()),
      out_(device.new_stream()) {}

int OffloadStore::add(States host, bool updated, bool converted) {
  const int bucket = static_cast<int>(entries_.size());
  Entry& entry = entries_.emplace_back();
  entry.host = std::move(host);
  entry.converted = converted;
  entry.stored = device_.new_event();
  if (!updated) return bucket;
  entry.order = 0;
  if (last_updated_ >= 0) {
    Entry& before = entries_[static_cast<size_t>(last_updated_)];
    before.next = bucket;
    entry.order = before.order + 1;
  }
  last_updated_ = bucket;
  return bucket;
}

void OffloadStore::allocate() {
  int64_t updated = 0, master = 0;
  for (const Entry& entry : entries_) {
    if (entry.order >= 0) updated = std::max(updated, bytes_of(entry.host));
    if (entry.converted)
      master = std::max(master, static_cast<int64_t>(entry.host.master.nbytes()));
  }
  for (Buffer& buffer : buffers_) {
    buffer.memory = device_.zeros({updated}, at::kByte);
    buffer.loaded = device_.new_event();
    buffer.used = device_.new_event();
  }
  wide_ = device_.zeros({master}, at::kByte);
  device_.synchronize();  // or `in` might write into a buffer before the zeros do
}

void OffloadStore::load_master(int bucket, const at::Tensor& to) {
  const Entry& entry = entries_[static_cast<size_t>(bucket)];
  device_.current_stream().wait(entry.stored);
  const at::Tensor& master = entry.host.master;
  if (to.scalar_type() == master.scalar_type()) {
    // variable_data() keeps autograd from counting this as a change of what it has saved: the slot
    // gets back the values that it had.
    to.variable_data().copy_(master, /*non_blocking=*/true);
    return;
  }
  at::Tensor wide =
      wide_.narrow(0, 0, static_cast<int64_t>(master.nbytes())).view(master.scalar_type());
  wide.copy_(master, /*non_blocking=*/true);
  kernels::convert(to, wide);
}

void OffloadStore::load(int bucket) {
  const Entry& entry = entries_[static_cast<size_t>(bucket)];
  Buffer& buffer = buffers_[buffer_of(bucket)];
  if (buffer.bucket >= 0) in_.wait(entries_[static_cast<size_t>(buffer.bucket)].stored);
  in_.wait(entry.stored);
  buffer.bucket = bucket;
  trace("load", bucket);
  int64_t offset = 0;
  const auto place = [&](const at::Tensor& host) {
    const auto bytes = static_cast<int64_t>(host.nbytes());
    const at::Tensor part = buffer.memory.narrow(0, offset, bytes).view(host.scalar_type());
    offset += padded_bytes(bytes);
    return part;
  };
  buffer.states = {place(entry.host.master), {}, {}};
  for (const at::Tensor& moment : entry.host.moments)
    buffer.states.moments.push_back(place(moment));
  if (entry.host.grad.defined()) buffer.states.grad = place(entry.host.grad);
  const StreamScope scope(in_);
  for_states(entry.host, buffer.states, true,
             [](const at::Tensor& from, at::Tensor to) { to.copy_(from, /*non_blocking=*/true); });
  buffer.loaded.record(in_);
}

void OffloadStore::begin(int bucket) {
  if (!error_.empty())
    fail("offload", "states could not be copied to the host's memory: {}", error_);
  const Entry& entry = entries_.at(static_cast<size_t>(bucket));
  Buffer& buffer = buffers_[buffer_of(bucket)];
  if (entry.order == 0) load(bucket);
  device_.current_stream().wait(buffer.loaded);
  if (entry.next >= 0) load(entry.next);
  trace("update", bucket);
}

void OffloadStore::end(int bucket) noexcept {
  try {
    Entry& entry = entries_[static_cast<size_t>(bucket)];
    Buffer& buffer = buffers_[buffer_of(bucket)];
    trace("store", bucket);
    buffer.used.record(device_.current_stream());
    out_.wait(buffer.used);
    const StreamScope scope(out_);
    for_states(buffer.states, entry.host, false, [](const at::Tensor& from, at::Tensor to) {
      to.copy_(from, /*non_blocking=*/true);
    });
    entry.stored.record(out_);
  } catch (const std::exception& e) {
    if (error_.empty()) error_ = e.what();
  }
}

void OffloadStore::add_to(MemoryLedger& ledger) const {
  int64_t bytes = static_cast<int64_t>(wide_.nbytes());
  for (const Buffer& buffer : buffers_) bytes += static_cast<int64_t>(buffer.memory.nbytes());
  ledger.add(MemoryClass::kStaging, bytes);
}

void OffloadStore::trace(const char* what, int bucket) const {
  if (trace_) trace_(std::string(what) + " " + std::to_string(bucket));
}

}  // namespace tessera
