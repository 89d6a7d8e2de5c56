#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "doctor/facts/numbers.h"
#include "doctor/measure/gather.h"
#include "doctor/measure/measure.h"

namespace tessera::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 3;
constexpr int kSmall = 20;
constexpr int64_t kBytesOfRank = int64_t{4} << 20;
constexpr int64_t kMostBytes = int64_t{64} << 20;  // of all ranks of a group together
constexpr double kSecondsOfTraffic = 0.3;

template <typename F>
double timed(F&& run) {
  const auto begun = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// The largest of all ranks' values.
double largest(Communicator& world, double value) {
  at::Tensor all = at::full({1}, value, at::kDouble);
  world.all_reduce(all, ReduceOp::kMax).block();
  return all.item<double>();
}

// This rank's view of its group.
AxisSpeed measure_group(Communicator& world, Communicator& group, const std::string& axis,
                        at::Device device) {
  AxisSpeed speed;
  speed.axis = axis;
  speed.one_node = group.on_one_node();
  const at::Tensor one = at::zeros({1}, at::dtype(at::kFloat).device(device));
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + kSmall; ++i) {
    const double taken = timed([&] { group.all_reduce(one, ReduceOp::kSum).block(); });
    if (i >= kWarmUps) times.push_back(taken);
  }
  speed.all_reduce_us = median(times) * 1e6;

  const int64_t bytes = std::min(kBytesOfRank, kMostBytes / group.size());
  const at::Tensor in = at::zeros({bytes}, at::dtype(at::kByte).device(device));
  const at::Tensor out = at::zeros({bytes * group.size()}, in.options());
  const auto gather_once = [&] { group.all_gather(out, in).block(); };
  gather_once();
  // All groups do as many, so that none measures while others have stopped.
  const double trial = largest(world, timed(gather_once));
  const int count = std::clamp(static_cast<int>(kSecondsOfTraffic / trial), 1, 20);
  const double taken = timed([&] {
    for (int i = 0; i < count; ++i) gather_once();
  });
  speed.bytes_per_s = static_cast<double>(bytes * (group.size() - 1) * count) / taken;
  return speed;
}

}  // namespace

std::vector<AxisPlace> axes_of(const MeshShape& shape, int rank) {
  std::vector<AxisPlace> axes;
  const int tp_rank = rank % shape.tp;
  const int shard_rank = rank / shape.tp % shape.dp_shard;
  const int replicate_rank = rank / (shape.tp * shape.dp_shard);
  const auto add = [&](const char* axis, int size, int color, int key) {
    if (size > 1) axes.push_back({axis, size, color, key});
  };
  add("tp", shape.tp, rank / shape.tp, tp_rank);
  add("dp_shard", shape.dp_shard, replicate_rank * shape.tp + tp_rank, shard_rank);
  add("dp_replicate", shape.dp_replicate, rank % (shape.tp * shape.dp_shard), replicate_rank);
  return axes;
}

std::vector<AxisSpeed> measure_axes(Communicator& world, const std::vector<AxisPlace>& axes,
                                    at::Device device) {
  std::vector<AxisSpeed> speeds;
  for (const AxisPlace& place : axes) {
    const std::unique_ptr<Communicator> group = world.split(place.color, place.key, place.axis);
    const std::vector<AxisSpeed> views =
        gather(world, measure_group(world, *group, place.axis, device));
    const std::vector<int> colors = gather(world, place.color);
    // A group is as fast as its slowest rank.
    std::map<int, AxisSpeed> groups;
    for (size_t rank = 0; rank < views.size(); ++rank) {
      const auto [at, first] = groups.try_emplace(colors[rank], views[rank]);
      AxisSpeed& of_group = at->second;
      of_group.all_reduce_us = std::max(of_group.all_reduce_us, views[rank].all_reduce_us);
      of_group.bytes_per_s = std::min(of_group.bytes_per_s, views[rank].bytes_per_s);
      of_group.ranks.push_back(static_cast<int>(rank));
    }
    for (auto& [color, of_group] : groups) speeds.push_back(std::move(of_group));
  }
  return speeds;
}

}  // namespace tessera::doctor
