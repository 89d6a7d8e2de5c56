#include "parallel/comm/core/self_communicator.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "kernels/kernels.h"
#include "parallel/comm/core/operation.h"
#include "parallel/comm/core/self_group.h"

namespace tessera {
namespace {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(std::string name, WorldState world, std::shared_ptr<const RankNames> ranks)
      : Communicator(0, 1, std::move(name), std::move(ranks)), world_(std::move(world)) {}

  Work start(Operation op) override {
    if (world_.abort->raised())
      fail("comm", "{}: {} on {} was aborted: {}", name(), op.text(*rank_names()), rank_text(0),
           world_.abort->reason());
    if (op.in_data == nullptr || op.in_data == op.out_data || op.count == 0) return {};
    if (op.out_dtype == op.dtype) {
      std::memcpy(op.out_data, op.in_data, static_cast<size_t>(op.count * op.element_bytes));
    } else {  // the halves of a reduce_scatter to fp32
      const void* source = op.in_data;
      kernels::sum_ranks(op.out_data, op.out_dtype, &source, op.dtype, 1, op.count);
    }
    return {};
  }

  std::unique_ptr<Communicator> split(int color, int /*key*/, std::string name) override {
    check_color(*this, color);
    return make_self_communicator(std::move(name), world_, rank_names());
  }

  void abort(const std::string& reason) override { world_.abort->raise(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return world_.abort; }
  const std::shared_ptr<CommRecord>& record() const override { return world_.record; }

 private:
  WorldState world_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string name) {
  return make_self_communicator(std::move(name), WorldState(),
                                std::make_shared<const RankNames>(1));
}

std::unique_ptr<Communicator> make_self_communicator(std::string name, WorldState world,
                                                     std::shared_ptr<const RankNames> ranks) {
  return std::make_unique<SelfCommunicator>(std::move(name), std::move(world), std::move(ranks));
}

}  // namespace tessera
