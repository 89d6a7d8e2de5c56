#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "safetensors/writer.h"

namespace tessera {

// Writes a matrix that comes row by row as the columns of a file's tensor: of [columns, all rows],
// it fills what belongs to its rows. A band of rows is collected and turned at a time, so that
// memory does not depend on the matrix, and each write has many elements of a column.
class ColumnWriter {
 public:
  // `spec`: of tensor number `tensor` of the file; `first_row`: where the matrix begins among all
  // rows.
  ColumnWriter(SafetensorsWriter& file, size_t tensor, const TensorSpec& spec, int64_t first_row);

  // The next bytes of the rows, from the first element on.
  void append(const std::byte* data, int64_t bytes);
  // After the last of them.
  void finish() { write_band(); }

 private:
  void write_band();

  SafetensorsWriter& file_;
  size_t tensor_;
  int64_t columns_;
  int64_t all_rows_;
  int64_t size_;  // bytes of an element
  int64_t row_;   // of the band's first among all
  int64_t band_bytes_;
  int64_t filled_ = 0;  // bytes of the band
  std::vector<std::byte> band_;
  std::vector<std::byte> turned_;
};

}  // namespace tessera
