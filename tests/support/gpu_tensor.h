#pragma once

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera::testing {

// A tensor of floats, [numel] or [numel, columns], that says it lies on GPU 0, for code that must
// refuse it: its memory is the host's, and nothing may compute with it.
inline at::Tensor pretended_gpu_tensor(int64_t numel, int64_t columns = 0) {
  const at::Device gpu(at::kCUDA, 0);
  const auto bytes = static_cast<size_t>(numel * std::max<int64_t>(columns, 1)) * sizeof(float);
  at::Storage storage(at::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, gpu));
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      caffe2::TypeMeta::Make<float>());
  if (columns == 0)
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({numel});
  else
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({numel, columns});
  return tensor;
}

}  // namespace tessera::testing
