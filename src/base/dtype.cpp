#include "base/dtype.h"

#include <array>
#include <utility>

namespace tessera {
namespace {

struct Entry {
  Dtype dtype;
  std::string_view name;
  int64_t size;
};

constexpr std::array<Entry, 13> kEntries{{{Dtype::kBool, "BOOL", 1},
                                          {Dtype::kU8, "U8", 1},
                                          {Dtype::kI8, "I8", 1},
                                          {Dtype::kI16, "I16", 2},
                                          {Dtype::kU16, "U16", 2},
                                          {Dtype::kI32, "I32", 4},
                                          {Dtype::kU32, "U32", 4},
                                          {Dtype::kI64, "I64", 8},
                                          {Dtype::kU64, "U64", 8},
                                          {Dtype::kF16, "F16", 2},
                                          {Dtype::kBF16, "BF16", 2},
                                          {Dtype::kF32, "F32", 4},
                                          {Dtype::kF64, "F64", 8}}};

}  // namespace

int64_t dtype_size(Dtype dtype) {
  return kEntries[static_cast<size_t>(dtype)].size;
}

std::string_view dtype_name(Dtype dtype) {
  return kEntries[static_cast<size_t>(dtype)].name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const auto& entry : kEntries)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

}  // namespace tessera
