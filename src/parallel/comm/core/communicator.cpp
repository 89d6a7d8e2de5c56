#include "parallel/comm/core/communicator.h"

#include <utility>

#include "parallel/comm/core/operation.h"

namespace tessera {

Work Communicator::all_gather(at::Tensor out, at::Tensor in) {
  return start(all_gather_operation(*this, std::move(out), std::move(in)));
}

Work Communicator::reduce_scatter(at::Tensor out, at::Tensor in) {
  return start(reduce_scatter_operation(*this, std::move(out), std::move(in)));
}

Work Communicator::all_reduce(at::Tensor tensor, ReduceOp op) {
  return start(all_reduce_operation(*this, std::move(tensor), op));
}

Work Communicator::broadcast(at::Tensor tensor, int root) {
  return start(broadcast_operation(*this, std::move(tensor), root));
}

Work Communicator::all_to_all(at::Tensor out, at::Tensor in) {
  return start(all_to_all_operation(*this, std::move(out), std::move(in)));
}

Work Communicator::send(at::Tensor tensor, int destination) {
  return start(send_operation(*this, std::move(tensor), destination));
}

Work Communicator::recv(at::Tensor tensor, int source) {
  return start(recv_operation(*this, std::move(tensor), source));
}

Work Communicator::barrier() {
  return start(Operation{});
}

}  // namespace tessera
