#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>

#include "doctor/facts/numbers.h"
#include "doctor/probes/probes.h"

namespace tessera::doctor {
namespace {

// A mask of hardware threads, as large as the kernel wants it.
class Mask {
 public:
  explicit Mask(int most)
      : bytes_(CPU_ALLOC_SIZE(static_cast<size_t>(most))),
        bits_(CPU_ALLOC(static_cast<size_t>(most))),
        most_(most) {
    if (bits_ != nullptr) CPU_ZERO_S(bytes_, bits_);
  }
  ~Mask() { CPU_FREE(bits_); }
  Mask(const Mask&) = delete;
  Mask& operator=(const Mask&) = delete;

  // Of the calling thread.
  bool read() { return bits_ != nullptr && sched_getaffinity(0, bytes_, bits_) == 0; }
  void fill() {
    for (int i = 0; i < most_ && bits_ != nullptr; ++i)
      CPU_SET_S(static_cast<size_t>(i), bytes_, bits_);
  }
  bool apply() const { return bits_ != nullptr && sched_setaffinity(0, bytes_, bits_) == 0; }
  std::vector<int> numbers() const {
    std::vector<int> numbers;
    for (int i = 0; i < most_; ++i)
      if (CPU_ISSET_S(static_cast<size_t>(i), bytes_, bits_)) numbers.push_back(i);
    return numbers;
  }

 private:
  size_t bytes_;
  cpu_set_t* bits_;
  int most_;
};

constexpr int kMostThreads = 1 << 20;

// Where the calling thread may run.
std::vector<int> bound_here() {
  // The kernel's mask may be larger than the usual 1024.
  for (int most = 1024; most <= kMostThreads; most *= 2) {
    Mask mask(most);
    if (mask.read()) return mask.numbers();
  }
  return {};
}

// Where a thread of this process could run at most: one that asks for everything gets what its
// control group permits.
std::vector<int> allowed_here(const std::vector<int>& bound) {
  std::vector<int> allowed = bound;
  try {
    std::thread([&] {
      Mask all(std::max(1024, bound.empty() ? 0 : bound.back() + 1));
      all.fill();
      if (all.apply()) allowed = bound_here();
    }).join();
  } catch (const std::system_error&) {
    // No thread to be had: then what is known is where this one may run.
  }
  return allowed;
}

// The NUMA nodes that have one of the hardware threads.
std::vector<int> numa_nodes(const std::vector<int>& threads) {
  std::vector<int> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    const std::vector<int> number = parse_numbers(std::string_view(name).substr(4));
    if (number.empty()) continue;
    const std::vector<int> of_node = parse_numbers(first_line(entry.path() / "cpulist"));
    if (std::find_first_of(of_node.begin(), of_node.end(), threads.begin(), threads.end()) !=
        of_node.end())
      nodes.push_back(number[0]);
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace

Cores probe_cores(int threads) {
  Cores cores;
  cores.bound = bound_here();
  cores.allowed = allowed_here(cores.bound);
  cores.numa = numa_nodes(cores.bound);
  cores.threads = threads;
  return cores;
}

}  // namespace tessera::doctor
