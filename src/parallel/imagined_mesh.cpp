#include "parallel/imagined_mesh.h"

#include <utility>

#include "base/error.h"
#include "parallel/comm/core/group_context.h"
#include "parallel/comm/core/operation.h"

namespace tessera {
namespace {

class ImaginedGroup final : public Communicator {
 public:
  ImaginedGroup(const MeshShape& shape, int rank, int size, std::string name)
      : Communicator(rank, size, std::move(name)), shape_(shape) {}

  Work start(Operation op) override { refuse(operation_name(op.kind)); }

  // The groups that a Mesh makes of its world; `key` is the place in them.
  std::unique_ptr<Communicator> split(int /*color*/, int key, std::string name) override {
    const int size = name == "tp"                           ? shape_.tp
                     : name == "gather" || name == "reduce" ? shape_.dp_shard
                     : name == "replicate"                  ? shape_.dp_replicate
                                                            : 0;
    if (size == 0) refuse("split");
    return std::make_unique<ImaginedGroup>(shape_, key, size, std::move(name));
  }

  void abort(const std::string& reason) override { world_.abort->raise(reason); }
  const std::shared_ptr<AbortState>& abort_state() const override { return world_.abort; }
  const std::shared_ptr<CommRecord>& record() const override { return world_.record; }

 private:
  [[noreturn]] void refuse(const char* operation) const {
    fail("comm", "{}: {} in a group of {} ranks that nobody has started", name(), operation,
         size());
  }

  MeshShape shape_;
  WorldState world_;
};

}  // namespace

Mesh imagined_mesh(const MeshShape& shape, int rank) {
  return Mesh(shape, std::make_unique<ImaginedGroup>(shape, rank, shape.world(), "world"));
}

}  // namespace tessera
