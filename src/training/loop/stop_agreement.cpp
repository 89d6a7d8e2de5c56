#include "training/loop/stop_agreement.h"

#include <ATen/ATen.h>

#include <string>

#include "parallel/comm/core/agreement.h"

namespace tessera {

bool stop_agreed(Communicator& world, const StopSignal& stop_signal) {
  at::Tensor wishes = at::full({1}, stop_signal.requested() ? 1.0 : 0.0, at::kDouble);
  world.all_reduce(wishes, ReduceOp::kSum).wait();
  return wishes.item<double>() > 0.0;
}

void throw_if_stop_agreed(Communicator& world, const StopSignal& stop_signal) {
  agree(world, [&] {
    stop_signal.check();
    return std::string();
  });
}

}  // namespace tessera
