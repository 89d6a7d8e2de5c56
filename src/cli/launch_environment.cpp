#include "cli/launch_environment.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

namespace tessera {
namespace {

std::optional<int> number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view = text;
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size()) return std::nullopt;
  return value;
}

std::optional<int> first(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const std::optional<int> value = number(name)) return value;
  }
  return std::nullopt;
}

}  // namespace

LaunchEnvironment LaunchEnvironment::read() {
  LaunchEnvironment environment;
  environment.rank =
      first({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}).value_or(0);
  environment.ranks = first({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  // Slurm's counts alone do not say that MPI will see them: a batch script has them too.
  if (!environment.ranks && number("PMIX_RANK")) {
    environment.ranks = first({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  }
  return environment;
}

}  // namespace tessera
