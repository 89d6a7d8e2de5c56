#pragma once

namespace tessera {

// What runs beside the communication of tensor parallelism.
enum class TpOverlap {
  kOff,       // nothing: each operation is waited for at once
  kBackward,  // the weight gradient's product, beside the sum of the input's gradient
  kRing,  // under sequence parallelism, also the products around each linear layer's gathers and
          // sums, which run in chunks (overlapped.h); elsewhere as kBackward
};

}  // namespace tessera
