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
  SelfCommunicator(std::string name, std::shared_ptr<AbortState> abort)
      : Communicator(0, 1, std::move(name)), abort_(std::move(abort)) {}

  Work start(Operation op) override {
    if (abort_->raised())
      fail("comm", "{}: {} on rank 0 was aborted: {}", name(), op.text(), abort_->reason());
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
    return make_self_communicator(std::move(name), abort_);
  }

  void abort(const std::string& reason) override { abort_->raise(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return abort_; }

 private:
  std::shared_ptr<AbortState> abort_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string name) {
  return make_self_communicator(std::move(name), std::make_shared<AbortState>());
}

std::unique_ptr<Communicator> make_self_communicator(std::string name,
                                                     std::shared_ptr<AbortState> abort) {
  return std::make_unique<SelfCommunicator>(std::move(name), std::move(abort));
}

}  // namespace tessera
