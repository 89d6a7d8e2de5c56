#include "checkpoint/huggingface/column_writer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

constexpr int64_t kBandBytes = int64_t{16} << 20;

// [rows, columns] -> [columns, rows], in squares whose lines stay in the cache.
template <typename Element>
void transpose(const std::byte* from, std::byte* to, int64_t rows, int64_t columns) {
  constexpr int64_t kSquare = 32;
  const auto* in = reinterpret_cast<const Element*>(from);
  auto* out = reinterpret_cast<Element*>(to);
  for (int64_t r0 = 0; r0 < rows; r0 += kSquare)
    for (int64_t c0 = 0; c0 < columns; c0 += kSquare)
      for (int64_t c = c0; c < std::min(c0 + kSquare, columns); ++c)
        for (int64_t r = r0; r < std::min(r0 + kSquare, rows); ++r)
          out[c * rows + r] = in[r * columns + c];
}

}  // namespace

ColumnWriter::ColumnWriter(SafetensorsWriter& file, size_t tensor, const TensorSpec& spec,
                           int64_t first_row)
    : file_(file),
      tensor_(tensor),
      columns_(spec.shape.at(0)),
      all_rows_(spec.shape.at(1)),
      size_(dtype_size(spec.dtype)),
      row_(first_row) {
  const int64_t row_bytes = std::max<int64_t>(columns_ * size_, 1);
  const int64_t most = std::max<int64_t>(kBandBytes / row_bytes, 1);
  band_bytes_ = std::min(most, all_rows_ - first_row) * row_bytes;
  band_.resize(static_cast<size_t>(band_bytes_));
  turned_.resize(band_.size());
}

void ColumnWriter::append(const std::byte* data, int64_t bytes) {
  while (bytes > 0) {
    const int64_t part = std::min(bytes, band_bytes_ - filled_);
    std::memcpy(band_.data() + filled_, data, static_cast<size_t>(part));
    data += part;
    bytes -= part;
    filled_ += part;
    if (filled_ == band_bytes_) write_band();
  }
}

void ColumnWriter::write_band() {
  if (filled_ == 0) return;
  const int64_t rows = filled_ / (columns_ * size_);
  switch (size_) {
    case 2:
      transpose<uint16_t>(band_.data(), turned_.data(), rows, columns_);
      break;
    case 4:
      transpose<uint32_t>(band_.data(), turned_.data(), rows, columns_);
      break;
    case 8:
      transpose<uint64_t>(band_.data(), turned_.data(), rows, columns_);
      break;
    default:
      fail("checkpoint", "no weights have elements of {} bytes", size_);
  }
  for (int64_t c = 0; c < columns_; ++c)
    file_.write(tensor_, (c * all_rows_ + row_) * size_, turned_.data() + c * rows * size_,
                rows * size_);
  row_ += rows;
  filled_ = 0;
}

}  // namespace tessera
