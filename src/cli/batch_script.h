#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Numbers of nodes that a job may run on.
struct NodeRange {
  int fewest = 1;
  int most = 1;

  // "4" or "2-4"; UserError for anything else.
  static NodeRange parse(const std::string& text);
  std::string text() const;
};

// A batch script of Slurm for one configuration: the numbers of the job. What the job does is
// launch/train.sbatch, which the script sources.
struct BatchScript {
  NodeRange nodes;
  int ranks_per_node = 1;
  int cpus_per_rank = 1;
  int gpus_per_node = 0;      // 0: none
  int64_t memory_mib = 0;     // of a node; 0: what the partition gives
  std::string memory_reason;  // where that number comes from, as a comment; empty: none
  std::string time = "1:00:00";
  int lead = 120;  // seconds before the time limit at which the ranks are asked to save
  std::string name = "tessera";
  std::vector<std::string> options;    // further ones of sbatch, as "--partition=gpu"
  std::string train_script;            // the path of launch/train.sbatch
  std::string program;                 // the path of tessera
  std::vector<std::string> arguments;  // of tessera train: the configuration, --set a.b=value ...

  // UserError if a value would be refused by Slurm, or understood as another.
  std::string text() const;
};

// `text` as one word of the shell.
std::string shell_word(const std::string& text);

// The host memory in MiB that a rank of a job is given. `states`: its bytes of states and buffers
// by the forecast, which counts no activations; `on_gpu`: they lie in a GPU's memory.
int64_t rank_memory_mib(int64_t states, bool on_gpu);

}  // namespace tessera
