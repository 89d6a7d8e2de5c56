#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "doctor/facts/facts.h"
#include "doctor/facts/measured.h"
#include "doctor/facts/nodes.h"
#include "doctor/judge/finding.h"
#include "doctor/report/table.h"
#include "parallel/comm/core/communicator.h"
#include "parallel/device/device.h"
#include "parallel/mesh_shape.h"

// `tessera doctor`: what machine, network, files and launcher are like, measured on all ranks
// together. In five parts, so that what is judged can be tested without a cluster:
//
//   facts/     what there is to know, as plain structs
//   probes/    what a process finds out by itself
//   measure/   what ranks find out together
//   judge/     what it means: findings, each with a number and the next thing to try
//   report/    tables for people
namespace tessera::doctor {

struct DoctorOptions {
  std::filesystem::path run_dir = {};  // empty: no run folder is tried
  std::optional<MeshShape> mesh = {};  // of this world; nullopt: all ranks are one group
  bool tp_across_nodes = false;        // whether the configuration allows it
  bool shared_memory = true;           // whether ranks of a node use /dev/shm
  bool quick = false;                  // nothing is measured that takes time
  int threads = 1;                     // that a rank computes with
};

struct Examination {
  std::vector<RankFacts> facts;
  std::vector<Node> nodes;
  std::vector<double> clocks;  // seconds ahead of rank 0's, by rank
  std::optional<FolderFacts> folder;
  std::vector<PairSpeed> pairs;
  std::vector<AxisSpeed> axes;
  std::vector<ProductSpeed> products;
  Findings findings;

  bool has_errors() const;
};

// Collective; all ranks get the same. `show` is called with each section when it is known. Error if
// a rank does not take part in time.
Examination examine(Communicator& world, const DoctorOptions& options,
                    const std::function<void(const Table&)>& show = {});

// All of it, for programs.
nlohmann::json to_json(const Examination& examination);

}  // namespace tessera::doctor
