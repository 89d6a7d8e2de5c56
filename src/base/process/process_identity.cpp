#include "base/process/process_identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/process/host_name.h"
#include "base/text/utc_text.h"

namespace tessera {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string first_word(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

// Containers of one machine have one kernel but may count processes each for themselves.
std::string machine_id() {
  const std::string boot = first_word("/proc/sys/kernel/random/boot_id");
  char space[64];
  const ssize_t length = ::readlink("/proc/self/ns/pid", space, sizeof space);
  if (boot.empty() || length <= 0) return "";
  return boot + " " + std::string(space, static_cast<size_t>(length));
}

// A task of an array has a number of its own too, but people know it by that of the array.
std::string job_name() {
  const std::string array = variable("SLURM_ARRAY_JOB_ID");
  const std::string task = variable("SLURM_ARRAY_TASK_ID");
  return array.empty() || task.empty() ? variable("SLURM_JOB_ID") : array + "_" + task;
}

// Field 22 of /proc/PID/stat: when it was started, in ticks since the boot; "ended" if it is there
// for its exit code alone, empty if there is no such process. The second field, the name, may hold
// anything, so counting starts after it.
std::string start_of(const std::string& process) {
  std::ifstream in("/proc/" + process + "/stat");
  std::string line;
  std::getline(in, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream rest(line.substr(name_end + 1));
  std::string field, state;
  rest >> state;
  if (state == "Z" || state == "X") return "ended";  // nobody has asked for its exit code yet
  for (int number = 4; number <= 22; ++number) rest >> field;
  return field;
}

}  // namespace

ProcessIdentity ProcessIdentity::own() {
  ProcessIdentity self;
  self.host = host_name();
  self.machine = machine_id();
  self.pid = ::getpid();
  self.started = start_of("self");
  self.since = utc_text(std::time(nullptr));
  self.cluster = variable("SLURM_CLUSTER_NAME");
  self.job = job_name();
  self.restarts = std::atoi(variable("SLURM_RESTART_COUNT").c_str());
  std::random_device random;
  self.token = fmt::format("{:08x}{:08x}", random(), random());
  return self;
}

ProcessIdentity ProcessIdentity::parse(std::string_view text) {
  ProcessIdentity found;
  const auto json = nlohmann::json::parse(text.substr(0, text.find('\n')), nullptr,
                                          /*allow_exceptions=*/false);
  if (!json.is_object()) return found;
  try {
    found.host = json.value("host", "");
    found.machine = json.value("machine", "");
    found.pid = json.value("pid", 0);
    found.started = json.value("started", "");
    found.since = json.value("since", "");
    found.cluster = json.value("cluster", "");
    found.job = json.value("job", "");
    found.restarts = json.value("restarts", 0);
    found.token = json.value("token", "");
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return found;
}

std::string ProcessIdentity::to_text() const {
  return nlohmann::json{{"host", host},       {"machine", machine},   {"pid", pid},
                        {"started", started}, {"since", since},       {"cluster", cluster},
                        {"job", job},         {"restarts", restarts}, {"token", token}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ProcessIdentity::describe() const {
  if (token.empty()) return "it does not say who it is";
  std::string text = fmt::format("host {}, process {}, since {}", host, pid, since);
  if (!job.empty()) text += fmt::format(", job {}", job);
  if (!job.empty() && restarts > 0) text += fmt::format(", restart {}", restarts);
  return text;
}

bool ProcessIdentity::is_later_turn_of(const ProcessIdentity& other) const {
  return !job.empty() && job == other.job && cluster == other.cluster && restarts > other.restarts;
}

ProcessIdentity::Life ProcessIdentity::life() const {
  if (token.empty()) return Life::kUnknown;
  if (machine.empty() || machine != machine_id()) return Life::kUnknown;
  const std::string now = start_of(std::to_string(pid));
  if (now.empty()) {
    // No such process, unless /proc hides those of others.
    return ::kill(pid, 0) != 0 && errno == ESRCH ? Life::kEnded : Life::kUnknown;
  }
  return now == started ? Life::kRuns : Life::kEnded;
}

}  // namespace tessera
