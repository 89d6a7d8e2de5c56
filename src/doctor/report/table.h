#pragma once

#include <string>
#include <vector>

namespace tessera::doctor {

// A section of what the doctor prints: cells in columns, of any number in a row.
struct Table {
  std::string title;
  std::vector<std::vector<std::string>> rows;

  // Keeps the first `most` rows, and says in one more how many were left out.
  void shorten(size_t most);
};

// The title, then a line for each row, its cells as wide as their column. Ends with a line end.
std::string text_of(const Table& table);

}  // namespace tessera::doctor
