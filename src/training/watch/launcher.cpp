#include "training/watch/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>

namespace tessera {
namespace {

constexpr size_t kMostNames = 100'000;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

// The parts of a text between commas that are in no bracket.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ',';
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != ',' || (depth != 0 && at < text.size())) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  return parts;
}

// Appends the names of one entry to `names`; false for what is no entry.
bool expand_entry(std::string_view entry, std::vector<std::string>& names) {
  const size_t open = entry.find('[');
  if (open == std::string_view::npos) {
    if (!entry.empty()) names.emplace_back(entry);
    return !entry.empty();
  }
  const size_t close = entry.find(']', open);
  if (close == std::string_view::npos) return false;
  for (const std::string_view range : split_list(entry.substr(open + 1, close - open - 1))) {
    const size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
    const auto from = number(first), to = number(last);
    if (!from || !to || *to < *from || *to - *from >= static_cast<int64_t>(kMostNames))
      return false;
    for (int64_t i = *from; i <= *to; ++i) {
      if (names.size() >= kMostNames) return false;
      // What follows the bracket may hold another.
      const std::string name = fmt::format("{}{:0{}}{}", entry.substr(0, open), i, first.size(),
                                           entry.substr(close + 1));
      if (!expand_entry(name, names)) return false;
    }
  }
  return true;
}

}  // namespace

std::string launch_id() {
  std::string id = variable("PMIX_NAMESPACE");
  if (id.empty()) id = variable("OMPI_MCA_ess_base_jobid");
  const bool of_slurm = id.empty() || id.starts_with("slurm.");
  if (id.empty() && !variable("SLURM_JOB_ID").empty() && !variable("SLURM_STEP_ID").empty())
    id = variable("SLURM_JOB_ID") + "." + variable("SLURM_STEP_ID");
  if (id.empty()) return id;
  // A requeued job has the same number, and so has its first step. mpirun's remote ranks do not see
  // Slurm's variables, and do not need them: each mpirun has a namespace of its own.
  if (of_slurm) id += "." + std::to_string(std::atoi(variable("SLURM_RESTART_COUNT").c_str()));
  std::replace_if(
      id.begin(), id.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-' && c != '_'; },
      '-');
  return id.substr(0, 100);
}

std::vector<std::string> hosts_of_ranks(int ranks) {
  const std::string order = variable("SLURM_DISTRIBUTION");
  if (!order.empty() && !order.starts_with("block")) return {};
  const auto nodes = expand_host_list(variable("SLURM_STEP_NODELIST"));
  const auto tasks = expand_task_counts(variable("SLURM_STEP_TASKS_PER_NODE"));
  if (nodes.empty() || nodes.size() != tasks.size()) return {};
  std::vector<std::string> hosts;
  for (size_t i = 0; i < nodes.size(); ++i)
    hosts.insert(hosts.end(), static_cast<size_t>(tasks[i]), nodes[i]);
  if (hosts.size() != static_cast<size_t>(ranks)) return {};
  return hosts;
}

std::vector<std::string> expand_host_list(std::string_view text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (const std::string_view entry : split_list(text))
    if (!expand_entry(entry, names)) return {};
  return names;
}

std::vector<int> expand_task_counts(std::string_view text) {
  std::vector<int> counts;
  if (text.empty()) return counts;
  for (const std::string_view entry : split_list(text)) {
    const size_t open = entry.find("(x");
    const auto tasks = number(entry.substr(0, open));
    std::optional<int64_t> nodes = 1;
    if (open != std::string_view::npos)
      nodes = entry.ends_with(')') ? number(entry.substr(open + 2, entry.size() - open - 3))
                                   : std::nullopt;
    if (!tasks || !nodes || counts.size() + *nodes > kMostNames ||
        *tasks > static_cast<int64_t>(kMostNames))
      return {};
    counts.insert(counts.end(), static_cast<size_t>(*nodes), static_cast<int>(*tasks));
  }
  return counts;
}

}  // namespace tessera
