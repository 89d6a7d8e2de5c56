#include "training/start/count_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/files/files.h"
#include "base/process/process_identity.h"
#include "base/text/utc_text.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{64} << 20;

// The highest N of the folders start-N; 0: none.
int64_t highest_folder(const std::filesystem::path& logs) {
  constexpr std::string_view kPrefix = "start-";
  int64_t highest = 0;
  for (const auto& path : list_folder(logs)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t number = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
    highest = std::max(highest, number);
  }
  return highest;
}

}  // namespace

StartCount count_start(const std::filesystem::path& run_dir, bool took_over, int ranks, int nodes) {
  const std::filesystem::path logs = run_dir / "logs", file = logs / "starts";
  StartCount count;
  count.number = 1;
  count.replaced_one = took_over;
  try {
    count.number = highest_folder(logs) + 1;
    std::string text;
    if (is_file(file)) text = read_small_file(file, kMostBytes);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object()) continue;  // such as one that a power failure has torn
      if (json.contains("start") && json["start"].is_number_integer())
        count.number = std::max(count.number, json["start"].get<int64_t>() + 1);
      if (json.contains("took_over")) count.replaced_one = true;
    }
    const ProcessIdentity self = ProcessIdentity::own();
    ordered_json json = {{"start", count.number},
                         {"time", utc_iso_text(std::time(nullptr))},
                         {"host", self.host},
                         {"process", self.pid}};
    if (!self.job.empty()) json.update({{"job", self.job}, {"restart", self.restarts}});
    json.update({{"ranks", ranks}, {"nodes", nodes}});
    if (took_over) json["took_over"] = true;
    const std::string line = (text.empty() || text.ends_with('\n') ? "" : "\n") +
                             json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) +
                             "\n";
    File out = File::open_to_write(file);
    out.write_at(line.data(), std::ssize(line), std::ssize(text));
    out.sync();
  } catch (const Error& failure) {
    count.warning = fmt::format("{}; this start is number {}, and not written down", failure.what(),
                                count.number);
  }
  return count;
}

}  // namespace tessera
