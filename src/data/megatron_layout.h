#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

// The layout of Megatron's .idx files, shared by the reader and the writer. Little-endian, and
// nothing after the header is aligned:
//
//   0   nine bytes "MMIDIDX\0\0"          34             S x i32 lengths in tokens
//   9   u64 version 1                     34 + 4S        S x i64 byte offsets into .bin
//   17  u8 element type code              34 + 12S       D x i64 document array: numbers of the
//   18  u64 S, the number of sequences                   sequences that start a document, from 0
//   26  u64 D, length of that array                      to S
//                                         34 + 12S + 8D  multimodal data only: S x i8 modes, 0 for
//                                                        text
namespace tessera::megatron {

static_assert(std::endian::native == std::endian::little, "files are read as they are");

inline constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t kVersion = 1;
inline constexpr int64_t kVersionAt = 9;
inline constexpr int64_t kDtypeAt = 17;
inline constexpr int64_t kSequencesAt = 18;
inline constexpr int64_t kDocumentsAt = 26;
inline constexpr int64_t kHeaderBytes = 34;

// A value from any byte position.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace tessera::megatron
