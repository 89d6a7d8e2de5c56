#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/error.h"
#include "safetensors/reader.h"

namespace tessera {

// All tensors of a safetensors file of fp32, int32 and int64.
inline std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& path) {
  const File file = File::open(path);
  const SafetensorsHeader header = read_safetensors_header(file);
  std::map<std::string, at::Tensor> tensors;
  for (const TensorEntry& entry : header.entries) {
    if (entry.dtype != Dtype::kF32 && entry.dtype != Dtype::kI32 && entry.dtype != Dtype::kI64)
      fail("test", "{}: {} is {}", path.string(), entry.name, dtype_name(entry.dtype));
    const at::Tensor tensor = at::empty(entry.shape, entry.dtype == Dtype::kF32   ? at::kFloat
                                                     : entry.dtype == Dtype::kI32 ? at::kInt
                                                                                  : at::kLong);
    file.read_at(tensor.data_ptr(), entry.end - entry.begin, header.data_begin + entry.begin);
    tensors[entry.name] = tensor;
  }
  return tensors;
}

}  // namespace tessera
