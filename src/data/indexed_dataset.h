#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// Element type codes of Megatron's .idx.
enum class TokenType : uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

// A data set PREFIX.bin and .idx in Megatron's layout, read by position, as one stream of tokens:
// all sequences in order. The modes of multimodal data are read and change nothing. UserError that
// names file, offset and numbers for a wrong magic, version, dtype (floats included), counts or
// offsets that do not fit the files, or an empty file.
class IndexedDataset {
 public:
  explicit IndexedDataset(const std::string& prefix);
  ~IndexedDataset();
  IndexedDataset(IndexedDataset&&) noexcept;
  IndexedDataset& operator=(IndexedDataset&&) noexcept;

  const std::string& prefix() const;
  int64_t num_tokens() const;
  int64_t num_sequences() const;
  int64_t num_documents() const;
  TokenType token_type() const;

  // Sequences whose mode is not 0, in the index of multimodal data: what is no text (images, ...).
  // They are part of the stream like all others.
  int64_t num_other_modes() const;

  // Sequence `sequence` (from 0) is tokens [begin, begin + length) of the stream.
  int64_t sequence_begin(int64_t sequence) const;
  int64_t sequence_length(int64_t sequence) const;

  // Identity of the data, wherever they lie: equal for equal files, and different for all others
  // but those that differ only between the samples that dataset_digest() takes. Reads the index and
  // at most 16 MiB of tokens. Such as "u8 4184252 tokens 1 sequences xxh3 0123456789abcdef".
  std::string fingerprint() const;

  // Writes tokens [begin, begin + out.size()) of the stream as int64.
  void read(int64_t begin, std::span<int64_t> out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
