#include "parallel/fsdp/repointable_tensor.h"

#include <ATen/ATen.h>

namespace tessera {
namespace {

void set_data(const at::Tensor& tensor, void* memory) {
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(memory, tensor.device()));
}

}  // namespace

RepointableTensor::RepointableTensor(int64_t numel, at::ScalarType dtype, at::Device device) {
  const auto bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes, at::DataPtr(nullptr, device),
                       /*allocator=*/nullptr, /*resizable=*/false);
  tensor_ = at::empty({0}, at::TensorOptions(device).dtype(dtype)).set_(storage, 0, {numel}, {1});
}

void RepointableTensor::point_at(void* memory) {
  set_data(tensor_, memory);
}

void RepointableTensor::release(void* poison) {
  set_data(tensor_, poison);
}

}  // namespace tessera
