#include "base/dtype.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Dtype, NamesAndSizesAreSafetensors) {
  struct Case {
    Dtype dtype;
    const char* name;
    int64_t size;
  };
  const Case cases[] = {
      {Dtype::kBool, "BOOL", 1}, {Dtype::kU8, "U8", 1},     {Dtype::kI8, "I8", 1},
      {Dtype::kI16, "I16", 2},   {Dtype::kU16, "U16", 2},   {Dtype::kI32, "I32", 4},
      {Dtype::kU32, "U32", 4},   {Dtype::kI64, "I64", 8},   {Dtype::kU64, "U64", 8},
      {Dtype::kF16, "F16", 2},   {Dtype::kBF16, "BF16", 2}, {Dtype::kF32, "F32", 4},
      {Dtype::kF64, "F64", 8}};
  for (const Case& c : cases) {
    EXPECT_EQ(dtype_name(c.dtype), c.name);
    EXPECT_EQ(dtype_size(c.dtype), c.size) << c.name;
    EXPECT_EQ(dtype_from_name(c.name), c.dtype) << c.name;
  }
}

TEST(Dtype, OtherNamesAreNotKnown) {
  for (const char* name : {"", "f32", "F8_E4M3", "C64", "F32 "})
    EXPECT_EQ(dtype_from_name(name), std::nullopt) << name;
}

}  // namespace
}  // namespace tessera
