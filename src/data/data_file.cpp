#include "data/data_file.h"

#include "base/error.h"

namespace tessera {
namespace {

File open_data(const std::string& path) {
  try {
    return File::open(path);
  } catch (const Error& error) {
    throw UserError(
        fmt::format("{}; a data set is named by the path of its .bin and .idx without the ending",
                    error.what()));
  }
}

}  // namespace

DataFile::DataFile(const std::string& path)
    : path_(path), file_(open_data(path)), size_(file_.size()) {
  if (size_ == 0) fail_user("data", "{} is empty: 0 bytes", path);
}

void DataFile::read(int64_t begin, std::span<std::byte> out) const {
  try {
    file_.read_at(out.data(), static_cast<int64_t>(out.size()), begin);
  } catch (const DamagedError&) {
    fail("data",
         "{} has become shorter while it was read: {} bytes when it was opened, now {}; put the "
         "file back as it was and start again",
         path_, size_, file_.size());
  }
}

std::vector<std::byte> DataFile::read(int64_t begin, int64_t bytes) const {
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  read(begin, data);
  return data;
}

}  // namespace tessera
