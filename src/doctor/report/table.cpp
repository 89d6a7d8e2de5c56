#include "doctor/report/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::doctor {

void Table::shorten(size_t most) {
  if (rows.size() <= most) return;
  const size_t left = rows.size() - most;
  rows.resize(most);
  rows.push_back({fmt::format("and {} more (--json lists all)", left)});
}

std::string text_of(const Table& table) {
  std::vector<size_t> widths;
  for (const auto& row : table.rows) {
    if (row.size() < 2) continue;  // a remark, which needs no column
    if (widths.size() < row.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = table.title + "\n";
  for (const auto& row : table.rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i)
      line += fmt::format(" {:<{}} ", row[i], row.size() < 2 ? 0 : widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tessera::doctor
