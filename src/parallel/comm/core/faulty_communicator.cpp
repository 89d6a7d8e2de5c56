#include "parallel/comm/core/faulty_communicator.h"

#include <utility>

namespace tessera {
namespace {

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner,
                     std::shared_ptr<const CollectiveFault> fault)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->rank_names()),
        inner_(std::move(inner)),
        fault_(std::move(fault)) {}

  at::Device device() const override { return inner_->device(); }
  bool on_one_node() const override { return inner_->on_one_node(); }

  Work start(Operation op) override {
    const bool pair = op.kind == OperationKind::kSend || op.kind == OperationKind::kRecv;
    if (pair || size() == 1) return inner_->start(std::move(op));
    std::optional<Operation> altered = (*fault_)(std::move(op));
    return altered ? inner_->start(std::move(*altered)) : Work();
  }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<FaultyCommunicator>(inner_->split(color, key, std::move(name)), fault_);
  }
  std::unique_ptr<Communicator> host_group(std::string name) override {
    return inner_->host_group(std::move(name));
  }

  void abort(const std::string& reason) override { inner_->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return inner_->abort_state(); }
  const std::shared_ptr<CommRecord>& record() const override { return inner_->record(); }

 private:
  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<const CollectiveFault> fault_;
};

}  // namespace

std::unique_ptr<Communicator> make_faulty(std::unique_ptr<Communicator> inner,
                                          CollectiveFault fault) {
  return std::make_unique<FaultyCommunicator>(
      std::move(inner), std::make_shared<const CollectiveFault>(std::move(fault)));
}

}  // namespace tessera
