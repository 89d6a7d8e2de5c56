#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "doctor/facts/facts.h"
#include "doctor/facts/measured.h"
#include "doctor/facts/nodes.h"
#include "doctor/measure/pair_plan.h"
#include "parallel/comm/core/communicator.h"
#include "parallel/device/device.h"
#include "parallel/mesh_shape.h"

// What ranks find out together, each in a file of its own. All are collective over `world`, and
// give the same on every rank.
namespace tessera::doctor {

// The facts of every rank, by rank.
std::vector<RankFacts> gather_facts(Communicator& world, const RankFacts& own);

// How many seconds each rank's clock is ahead of rank 0's, to within some milliseconds: ranks read
// their clocks when they leave a barrier, the median of three times.
std::vector<double> measure_clocks(Communicator& world);

// The pairs of the plan, in its order: latency, then the bandwidth from the first to the second.
// `device`: of the tensors that travel. About 50 ms a round.
std::vector<PairSpeed> measure_pairs(Communicator& world, const PairPlan& plan, at::Device device);

// A group of an axis that this rank is in.
struct AxisPlace {
  std::string axis;
  int size;   // of its groups
  int color;  // the number of this rank's group
  int key;    // this rank's place in it
};
// The axes of a mesh that have more than one rank, as Mesh lays them out (parallel/mesh.h).
std::vector<AxisPlace> axes_of(const MeshShape& shape, int rank);

// Small all-reduces and large all-gathers in every group of each axis, all groups of an axis at
// once. About half a second an axis.
std::vector<AxisSpeed> measure_axes(Communicator& world, const std::vector<AxisPlace>& axes,
                                    at::Device device);

// Square matrix products in fp32 and bf16, on all ranks at once, about 0.3 s of each. `threads`:
// that a rank computes with.
std::vector<ProductSpeed> measure_products(Communicator& world, const Device& device, int threads);

// What the run folder can do, tried by rank 0 and the first rank of each node in a folder of their
// own that goes at the end. A folder that was not there is made and removed again. `speed`: also
// write and read 64 MiB a node, or as much as goes in two seconds.
FolderFacts try_run_folder(Communicator& world, const std::filesystem::path& folder,
                           const std::vector<Node>& nodes, bool speed);

// Type and source of the file system that holds `path` (absolute, links resolved), by the text of
// /proc/self/mountinfo: "nfs4 (server:/home)". Empty if it does not say.
std::string file_system_of(const std::string& mounts, const std::string& path);

}  // namespace tessera::doctor
