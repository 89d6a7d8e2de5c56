#pragma once

#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/core/communicator.h"
#include "parallel/comm/core/operation.h"

namespace tessera {

// A group whose ranks are said to lie on several nodes.
class FarCommunicator final : public Communicator {
 public:
  explicit FarCommunicator(std::unique_ptr<Communicator> inner)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->rank_names()),
        inner_(std::move(inner)) {}

  bool on_one_node() const override { return false; }
  Work start(Operation op) override { return inner_->start(std::move(op)); }
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<FarCommunicator>(inner_->split(color, key, std::move(name)));
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return inner_->abort_state(); }
  const std::shared_ptr<CommRecord>& record() const override { return inner_->record(); }

 private:
  std::unique_ptr<Communicator> inner_;
};

}  // namespace tessera
