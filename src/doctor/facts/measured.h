#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// What ranks have measured together. As with facts, every rank gets all of it.
namespace tessera::doctor {

// Messages from rank `from` to rank `to`.
struct PairSpeed {
  int from = 0;
  int to = 0;
  double latency_us = 0.0;   // one way: half a round trip of 8 bytes, the median of several
  double bytes_per_s = 0.0;  // of large messages, one way
};

// Collectives of one group of ranks of a mesh axis.
struct AxisSpeed {
  std::string axis;
  std::vector<int> ranks;
  bool one_node = true;
  double all_reduce_us = 0.0;  // of one number; the median on the slowest rank
  double bytes_per_s = 0.0;    // that a rank takes in during an all-gather, on the slowest rank
};

// A matrix product, all ranks at once.
struct ProductSpeed {
  int rank = 0;
  std::string dtype;
  double flops = 0.0;  // floating-point operations per second, the median of several
};

// What one rank finds in the run folder.
struct FolderView {
  int rank = 0;
  std::string path;         // the folder as this rank names it, absolute
  bool visible = false;     // what rank 0 has made there is there
  bool looked = false;      // the first rank of its node, which tries the rest
  std::string file_system;  // type and source, such as "nfs4 (server:/home)"
  int64_t free = -1;        // bytes; -1: not told
  std::string error;        // empty: files can be written
  std::vector<std::string> lacks;
  // Whether a lock that rank 0 holds keeps this rank out: "held", "not held", "not tried", or why
  // it could not be tried.
  std::string lock = "not tried";
  double write_bytes_per_s = 0.0;  // 0: not measured
  double read_bytes_per_s = 0.0;
};

struct FolderFacts {
  std::string error;  // rank 0 could not begin: why
  std::vector<FolderView> views;
  int renames = 0;    // a file was replaced by rename so often ...
  int odd_reads = 0;  // ... and a reader met so often neither the old nor the new one
  int reader = -1;    // the rank that read; -1: none
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PairSpeed, from, to, latency_us, bytes_per_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AxisSpeed, axis, ranks, one_node, all_reduce_us, bytes_per_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProductSpeed, rank, dtype, flops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderView, rank, path, visible, looked, file_system, free,
                                   error, lacks, lock, write_bytes_per_s, read_bytes_per_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderFacts, error, views, renames, odd_reads, reader)

}  // namespace tessera::doctor
