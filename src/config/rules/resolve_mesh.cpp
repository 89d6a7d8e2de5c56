#include "config/rules/resolve_mesh.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/divisors.h"
#include "base/error.h"
#include "config/keys/key_places.h"

namespace tessera {

std::optional<MeshShape> resolve_mesh(const Config& config, int world, RuleReport& report) {
  const ParallelSection& p = config.parallel;
  const std::vector<std::string> keys = {"parallel.dp_shard", "parallel.tp",
                                         "parallel.dp_replicate"};
  const int64_t fixed = int64_t{p.tp} * p.dp_replicate;
  if (world < 1) fail("config", "{} ranks; must be at least 1", world);
  if (p.dp_shard == 0) {
    if (world % fixed == 0) return MeshShape{p.dp_replicate, static_cast<int>(world / fixed), p.tp};
    const auto fits = [&](int64_t tp) {
      return config.model->why_not_tp(tp).empty() && world % (tp * p.dp_replicate) == 0;
    };
    report.broken(
        keys,
        "parallel: dp_replicate {} x tp {} = {} must divide the number of ranks, which is "
        "{}; values of tp that would work with {} ranks: {}; or start a multiple of {} "
        "ranks",
        p.dp_replicate, p.tp, fixed, world, world, divisors(world, fits), fixed);
    return std::nullopt;
  }
  if (fixed * p.dp_shard == world) return MeshShape{p.dp_replicate, p.dp_shard, p.tp};
  const std::string fix = world % fixed == 0
                              ? fmt::format("dp_shard: {} (or auto) would fit", world / fixed)
                              : fmt::format("no dp_shard fits tp {} to {} ranks", p.tp, world);
  report.broken(
      keys,
      "parallel: dp_replicate {} x dp_shard {} x tp {} = {} ranks, but {} are started; {}; "
      "or start {} ranks",
      p.dp_replicate, p.dp_shard, p.tp, fixed * p.dp_shard, world, fix, fixed * p.dp_shard);
  return std::nullopt;
}

MeshShape resolve_mesh(const Config& config, int world) {
  Mistakes mistakes;
  const KeyPlaces nowhere;
  PlacedReport report(nowhere, mistakes);
  const auto mesh = resolve_mesh(config, world, report);
  mistakes.throw_if_any();
  return mesh.value();
}

}  // namespace tessera
