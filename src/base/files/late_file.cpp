#include "base/files/late_file.h"

#include <algorithm>
#include <system_error>
#include <thread>

#include "base/files/files.h"

namespace tessera {
namespace {

bool is_visible(const std::filesystem::path& path, std::optional<int64_t> size) {
  const std::filesystem::file_type type = type_of(path);
  if (!size) return type != std::filesystem::file_type::not_found;
  if (type != std::filesystem::file_type::regular) return false;
  std::error_code error;  // it may go again between the two looks
  const auto found = std::filesystem::file_size(path, error);
  return !error && static_cast<int64_t>(found) == *size;
}

}  // namespace

bool wait_until_visible(const std::filesystem::path& path, std::optional<int64_t> size,
                        std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + limit;
  for (std::chrono::milliseconds pause{10};;
       pause = std::min(pause * 2, std::chrono::milliseconds(500))) {
    if (is_visible(path, size)) return true;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    std::this_thread::sleep_for(std::min(pause, left));
    // Opening a folder makes a client of NFS ask the server what is in it, so that it forgets what
    // was not there a moment ago.
    std::error_code ignored;
    std::filesystem::directory_iterator(folder_of(path), ignored);
  }
}

}  // namespace tessera
