#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

// Element types of files and of parameters, independent of LibTorch. Names are safetensors' names.
enum class Dtype { kBool, kU8, kI8, kI16, kU16, kI32, kU32, kI64, kU64, kF16, kBF16, kF32, kF64 };

// Size of one element in bytes.
int64_t dtype_size(Dtype dtype);

// safetensors' name, such as "F32" or "BF16".
std::string_view dtype_name(Dtype dtype);

// The inverse of dtype_name(); nullopt for a name that is not known.
std::optional<Dtype> dtype_from_name(std::string_view name);

}  // namespace tessera
