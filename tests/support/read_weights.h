#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/store/reader.h"

namespace tessera {

// The whole weights of a checkpoint in fp32, by our names.
inline std::map<std::string, at::Tensor> read_weights(const std::filesystem::path& step_dir) {
  CheckpointReader reader(step_dir);
  std::map<std::string, at::Tensor> weights;
  for (const TensorInfo& info : reader.manifest().tensors) {
    const at::Tensor tensor = at::empty(info.shape, at::kFloat);
    auto* to = static_cast<std::byte*>(tensor.data_ptr());
    reader.stream(info.name, kStateParam, Dtype::kF32, [&](const std::byte* data, int64_t bytes) {
      std::memcpy(to, data, static_cast<size_t>(bytes));
      to += bytes;
    });
    weights[info.name] = tensor;
  }
  return weights;
}

}  // namespace tessera
