#include "training/engine/load_states.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "base/process/process_identity.h"
#include "parallel/comm/core/agreement.h"
#include "parallel/comm/core/file_work.h"
#include "parallel/device/host_copy.h"
#include "training/engine/train_state.h"

namespace tessera {
namespace {

// The ranks that need the same bytes as this one and share its node. Null: there are no others.
std::unique_ptr<Communicator> make_readers(const std::vector<FlatBucket*>& buckets, Mesh& mesh) {
  Communicator& world = mesh.world();
  if (world.size() == 1) return nullptr;
  const bool everything = std::any_of(buckets.begin(), buckets.end(), [](FlatBucket* bucket) {
    return bucket->placement().updates_everything();
  });
  const int shard = everything ? 0 : mesh.dp_shard_rank();
  const std::string machine = ProcessIdentity::own().machine;
  // A rank that does not know its machine is alone.
  const std::string own = fmt::format("{} {} {}", mesh.tp_rank(), shard,
                                      machine.empty() ? std::to_string(world.rank()) : machine);
  const std::vector<std::string> all = gather_messages(world, own);
  const auto first = static_cast<int>(std::find(all.begin(), all.end(), own) - all.begin());
  std::unique_ptr<Communicator> group = world.split(first, world.rank(), "load");
  return group->size() > 1 && group->on_one_node() ? std::move(group) : nullptr;
}

// Element where part `part` of `parts` begins.
int64_t bound(int64_t numel, int part, int parts) {
  return numel / parts * part + numel % parts * part / parts;
}

class StateLoader {
 public:
  StateLoader(const std::vector<FlatBucket*>& buckets, Mesh& mesh, StateSource& source,
              const std::function<bool()>& give_up)
      : mesh_(mesh), source_(source), give_up_(give_up), readers_(make_readers(buckets, mesh)) {}

  // One state of a bucket. `state`: on the bucket's device.
  void load(FlatBucket& bucket, const std::string& name, const at::Tensor& state) {
    const at::Tensor host = state.is_cpu() ? state : at::zeros_like(state, at::kCPU);
    const int parts = readers_ ? readers_->size() : 1, part = readers_ ? readers_->rank() : 0;
    read(bucket, name, host, bound(host.numel(), part, parts),
         bound(host.numel(), part + 1, parts));
    if (readers_) hand_over(host);
    if (!host.is_same(state)) copy_from_host(bucket.device(), state, host);
  }

  // Throws on all ranks what a rank has met.
  void finish() {
    agree(mesh_.world(), [&] {
      if (failure_) std::rethrow_exception(failure_);
      return std::string();
    });
  }

 private:
  // Elements [begin, end) of a state. What goes wrong is kept, since the others wait for this rank.
  void read(FlatBucket& bucket, const std::string& name, const at::Tensor& host, int64_t begin,
            int64_t end) {
    gave_up_ = gave_up_ || give_up_();
    if (gave_up_ || failure_) return;
    try {
      for (Segment segment : bucket.update_segments()) {
        const int64_t first = std::max(begin, segment.shard_offset);
        const int64_t last = std::min(end, segment.shard_offset + segment.slice.numel());
        if (first >= last) continue;
        segment.slice.begin += first - segment.shard_offset;
        segment.slice.end = segment.slice.begin + (last - first);
        segment.shard_offset = first;
        source_.read(piece_of(segment, name, host));
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  // Each reader's part to the others.
  void hand_over(const at::Tensor& host) {
    std::vector<Work> works;
    for (int root = 0; root < readers_->size(); ++root) {
      const int64_t begin = bound(host.numel(), root, readers_->size());
      const int64_t end = bound(host.numel(), root + 1, readers_->size());
      if (begin < end)
        works.push_back(readers_->broadcast(host.view(-1).slice(0, begin, end), root));
    }
    for (Work& work : works) work.block();
  }

  Mesh& mesh_;
  StateSource& source_;
  const std::function<bool()>& give_up_;
  std::unique_ptr<Communicator> readers_;
  bool gave_up_ = false;
  std::exception_ptr failure_;
};

}  // namespace

void load_states(const std::vector<FlatBucket*>& buckets, Mesh& mesh,
                 const std::vector<std::string>& states, StateSource& source,
                 const std::function<bool()>& give_up) {
  const FileWork file_work;  // others may read more than this rank
  StateLoader loader(buckets, mesh, source, give_up);
  for (FlatBucket* bucket : buckets) {
    bucket->settle();
    for (size_t i = 0; i < states.size(); ++i)
      if (const at::Tensor state = state_of(*bucket, i); state.defined())
        loader.load(*bucket, states[i], state);
  }
  loader.finish();
}

}  // namespace tessera
