#include "parallel/comm/shm/thread_communicator.h"

#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/process/start_thread.h"
#include "parallel/comm/core/queued_communicator.h"
#include "parallel/comm/core/self_group.h"
#include "parallel/comm/shm/shm_transport.h"

namespace tessera {
namespace {

// Small enough for tests to reach the second chunk quickly, large enough for real tensors.
constexpr int64_t kWindowBytes = 256 << 10;

// What the ranks of one group share: the segments, and the groups that are being split from it.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : size_(size) {
    const int64_t bytes = ShmTransport::segment_bytes(size, kWindowBytes);
    segments_.resize(size);
    for (auto& segment : segments_) {
      segment.reset(static_cast<std::byte*>(::operator new(bytes, kAlign)));
      std::fill_n(segment.get(), bytes, std::byte{0});
    }
  }

  int size() const { return size_; }

  std::vector<std::byte*> segments() const {
    std::vector<std::byte*> result;
    for (const auto& segment : segments_) result.push_back(segment.get());
    return result;
  }

  // The same new group for each of the `size` ranks that ask with this number and color.
  std::shared_ptr<ThreadGroup> child(uint64_t split_number, int color, int size) {
    std::lock_guard lock(mutex_);
    auto& entry = children_[{split_number, color}];
    if (!entry.group) entry.group = std::make_shared<ThreadGroup>(size);
    auto group = entry.group;
    if (++entry.taken == size) children_.erase({split_number, color});
    return group;
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlign); }
  };
  struct Child {
    std::shared_ptr<ThreadGroup> group;
    int taken = 0;
  };

  int size_;
  std::vector<std::unique_ptr<std::byte, Free>> segments_;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int>, Child> children_;
};

class ThreadCommunicator final : public QueuedCommunicator {
 public:
  ThreadCommunicator(const GroupContext& context, std::shared_ptr<ThreadGroup> group)
      : QueuedCommunicator(context, std::make_shared<ShmTransport>(context.rank, group->segments(),
                                                                   kWindowBytes, group)),
        group_(std::move(group)) {}

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    check_color(*this, color);
    const SplitPlace place = find_split_place(*this, color, key);
    const uint64_t number = splits_++;
    const auto ranks = rank_names()->part(place.members);
    if (place.size() == 1) return make_self_communicator(std::move(name), world_state(), ranks);
    return std::make_unique<ThreadCommunicator>(
        make_group_context(std::move(name), place.rank, ranks, limits(), world_state()),
        group_->child(number, color, place.size()));
  }

 private:
  std::shared_ptr<ThreadGroup> group_;
  uint64_t splits_ = 0;
};

}  // namespace

void run_thread_ranks(int ranks, const std::function<void(Communicator& world)>& body,
                      ThreadWorldOptions options) {
  if (ranks < 1) fail("comm", "run_thread_ranks: {} ranks; there must be at least 1", ranks);
  const auto abort = std::make_shared<AbortState>();
  const auto group = std::make_shared<ThreadGroup>(ranks);
  const auto names = std::make_shared<const RankNames>(ranks);
  std::mutex mutex;
  std::exception_ptr first;

  const auto run_rank = [&](int rank) {
    try {
      std::unique_ptr<Communicator> world;
      const WorldState state{.abort = abort};
      if (ranks == 1)
        world = make_self_communicator("world", state, names);
      else
        world = std::make_unique<ThreadCommunicator>(
            make_group_context("world", rank, names, {options.timeout, options.file_timeout},
                               state),
            group);
      try {
        body(*world);
      } catch (const std::exception& e) {
        // Noted before the abort, so that the errors it causes elsewhere come second; aborted
        // before the communicator goes.
        {
          std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        world->abort(fmt::format("rank {} failed: {}", rank, e.what()));
      }
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      abort->raise(fmt::format("rank {} failed", rank));
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank)
      threads.push_back(start_thread("a rank", [&run_rank, rank] { run_rank(rank); }));
  } catch (const std::exception& e) {  // those that run wait for the others
    std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
    abort->raise(e.what());
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace tessera
