#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

// A flat tensor whose storage stays the same object while the memory behind it is exchanged. Views
// of it, also those that autograd saved, follow. Whoever points it guarantees that the memory
// outlives its use. docs/decisions.md says why.
class RepointableTensor {
 public:
  RepointableTensor() = default;
  RepointableTensor(int64_t numel, at::ScalarType dtype, at::Device device);

  // memory: at least numel elements, of its device.
  void point_at(void* memory);
  // Released: at `poison` (NaNs; use after release shows) or at nothing.
  void release(void* poison);
  const at::Tensor& tensor() const { return tensor_; }

 private:
  at::Tensor tensor_;
};

}  // namespace tessera
