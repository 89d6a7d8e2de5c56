#include "training/output/rank_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "base/files/files.h"
#include "base/text/utc_text.h"
#include "training/output/outcome.h"

namespace tessera {

void write_rank_log(const std::filesystem::path& run_dir, int64_t start, int rank,
                    const std::string& text) noexcept {
  try {
    const std::filesystem::path folder = start_folder(run_dir, start);
    make_folders(folder);
    const std::string line = fmt::format("{}  {}\n", utc_text(std::time(nullptr)), text);
    const std::filesystem::path file = folder / fmt::format("rank-{:05}.log", rank);
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return;
    static_cast<void>(::write(fd, line.data(), line.size()) < 0);
    ::close(fd);
  } catch (const std::exception&) {
  }
}

}  // namespace tessera
