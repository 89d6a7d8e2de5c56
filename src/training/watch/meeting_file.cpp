#include "training/watch/meeting_file.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/late_file.h"

namespace tessera {
namespace {

constexpr const char* kName = ".watch-";

void remove_old(const std::filesystem::path& folder) {
  constexpr std::chrono::hours kOld{24};
  const auto now = std::filesystem::file_time_type::clock::now();
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (!entry.path().filename().string().starts_with(kName)) continue;
    std::error_code gone;
    const auto written = entry.last_write_time(gone);
    if (!gone && now - written > kOld) std::filesystem::remove(entry.path(), gone);
  }
}

}  // namespace

std::filesystem::path meeting_path(const std::filesystem::path& folder, const std::string& id) {
  return folder / (kName + id);
}

void write_meeting_file(const std::filesystem::path& path, const MeetingFile& file) {
  make_folders(path.parent_path());
  remove_old(path.parent_path());
  write_file_atomic(path, nlohmann::json{{"question", file.question},
                                         {"answer", file.answer},
                                         {"host", file.host},
                                         {"addresses", file.addresses},
                                         {"port", file.port}}
                              .dump());
  std::error_code ignored;  // a file system without modes
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, ignored);
}

std::optional<MeetingFile> read_meeting_file(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = 1 << 20;
  constexpr std::chrono::milliseconds kLook{20};  // twice: the first may be answered from memory
  try {
    if (!wait_until_visible(path, std::nullopt, kLook)) return std::nullopt;
    const auto json = nlohmann::json::parse(read_small_file(path, kMostBytes));
    return MeetingFile{json.at("question").get<std::string>(), json.at("answer").get<std::string>(),
                       json.at("host").get<std::string>(),
                       json.at("addresses").get<std::vector<std::string>>(),
                       json.at("port").get<int>()};
  } catch (const Error&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace tessera
