#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// What a rank finds out about its process and its node. Every rank gets the facts of all, as JSON,
// and judges the same facts; so all come to the same findings without talking about them.
namespace tessera::doctor {

using Texts = std::map<std::string, std::string>;

// An address of a network interface that is up; loopback and link-local addresses are left out.
struct NetworkAddress {
  std::string interface;
  std::string address;
  std::string subnet;  // such as "10.77.0.0/24"
  int64_t mbit = 0;    // speed as the kernel tells it; 0: it does not (virtual interfaces)
};

// A device for InfiniBand or RoCE.
struct Adapter {
  std::string name;
  std::string state;  // of its first port, such as "ACTIVE"
  std::string rate;   // such as "400 Gb/sec (4X NDR)"
  std::string kind;   // "InfiniBand" or "Ethernet"
  int numa = -1;      // -1: not told
  std::string path;   // of the PCI device in /sys
};

struct Gpu {
  std::string name;
  int64_t memory = 0;  // bytes
  int numa = -1;
  std::string path;
};

struct Cores {
  std::vector<int> bound;    // hardware threads that this process may run on
  std::vector<int> allowed;  // those that it could be bound to: all that its control group permits
  std::vector<int> numa;     // NUMA nodes of `bound`
  int threads = 1;           // that this rank computes with
};

inline constexpr int64_t kUnlimited = -1;

// Limits of the process (ulimit), in bytes or counts; kUnlimited: none.
struct Limits {
  int64_t address_space = kUnlimited;
  int64_t locked_memory = kUnlimited;
  int64_t files = kUnlimited;
  int64_t processes = kUnlimited;
};

// Bytes.
struct Memory {
  int64_t total = 0;
  int64_t available = 0;
  int64_t group_limit = kUnlimited;  // of the control group (a container, a Slurm job)
  int64_t shared_total = 0;          // /dev/shm
  int64_t shared_free = 0;
};

// How MPI moves messages. Empty where MPI has not been started.
struct Transports {
  std::string thread_level;
  std::vector<std::string> components;  // that Open MPI has chosen: "pml ob1", "btl tcp", ...
  Texts settings;                       // control variables that a person has set or may set
};

struct RankFacts {
  int rank = 0;
  std::string host;
  std::string kernel_run;  // tells running kernels apart, also where host names are alike
  std::string launcher;
  std::string working_folder;
  Texts versions;
  Texts environment;  // the variables that decide how ranks talk and compute, and are set
  std::vector<NetworkAddress> addresses;
  Cores cores;
  Limits limits;
  Memory memory;
  Transports transports;
  std::vector<Adapter> adapters;
  std::vector<Gpu> gpus;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NetworkAddress, interface, address, subnet, mbit)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Adapter, name, state, rate, kind, numa, path)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, name, memory, numa, path)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cores, bound, allowed, numa, threads)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Limits, address_space, locked_memory, files, processes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Memory, total, available, group_limit, shared_total, shared_free)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Transports, thread_level, components, settings)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, host, kernel_run, launcher, working_folder,
                                   versions, environment, addresses, cores, limits, memory,
                                   transports, adapters, gpus)

}  // namespace tessera::doctor
