#pragma once

#include <string>
#include <vector>

#include "doctor/facts/facts.h"

// What a process finds out by itself, each in a file of its own. None of them communicates, and
// none fails: what a system does not tell stays empty.
namespace tessera::doctor {

// The program, its libraries, the kernel, the processor.
Texts probe_versions();

// How this process was started: "by mpirun", "by srun", or "alone".
std::string probe_launcher();
// The environment variables that decide how ranks talk and compute, but those that a launcher sets
// otherwise for each rank.
Texts probe_environment();

// What MPI has chosen, once it is started.
Transports probe_transports();

// Addresses of interfaces that are up, but loopback and link-local ones.
std::vector<NetworkAddress> probe_addresses();
// "10.77.0.0/24" of "10.77.0.11" and 24; IPv6 too. Empty for what is no address.
std::string subnet_text(const std::string& address, int prefix);

// Where this process may run; `threads`: that it computes with.
Cores probe_cores(int threads);

Limits probe_limits();
Memory probe_memory();

// InfiniBand and RoCE devices, from /sys.
std::vector<Adapter> probe_adapters();

// The GPUs that this process sees. None in a build without CUDA.
std::vector<Gpu> probe_gpus();
// Versions of the CUDA driver, CUDA and NCCL. None in a build without CUDA.
Texts probe_gpu_versions();

// The first line of a small file, without what spaces are at its end; empty if there is none.
std::string first_line(const std::string& path);

// Where a PCI device lies in the tree of /sys, links resolved; empty if it is not there.
std::string device_path(const std::string& link);

// The NUMA node of a device, by its folder in /sys; -1: not told.
int numa_of(const std::string& device);

// Which of the facts are wanted: all, or those that the check at a start judges.
enum class Depth { kStart, kAll };

// All of them, of rank `rank`.
RankFacts collect_facts(int rank, int threads, Depth depth);

}  // namespace tessera::doctor
