#include "cli/launch_environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace tessera {
namespace {

// Reads with these variables only.
LaunchEnvironment read_with(const std::map<std::string, std::string>& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                           "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"}) {
    ::unsetenv(name);
  }
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  return LaunchEnvironment::read();
}

TEST(LaunchEnvironment, Launchers) {
  const struct {
    const char* label;
    std::map<std::string, std::string> variables;
    int rank;
    std::optional<int> ranks;
  } cases[] = {
      {"none", {}, 0, std::nullopt},
      {"mpirun", {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, 3, 4},
      {"mpirun in a batch job",
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "8"}},
       1,
       2},
      {"srun with PMIx",
       {{"PMIX_RANK", "5"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}},
       5,
       8},
      {"srun with PMI-2", {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}, 2, 4},
      // A batch script has counts of tasks that it did not start.
      {"batch script", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, 0, std::nullopt},
      {"not numbers",
       {{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4(x2)"}},
       0,
       std::nullopt},
  };
  for (const auto& c : cases) {
    const LaunchEnvironment environment = read_with(c.variables);
    EXPECT_EQ(environment.rank, c.rank) << c.label;
    EXPECT_EQ(environment.ranks, c.ranks) << c.label;
  }
}

}  // namespace
}  // namespace tessera
