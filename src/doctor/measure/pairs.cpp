#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "doctor/facts/numbers.h"
#include "doctor/measure/gather.h"
#include "doctor/measure/measure.h"

namespace tessera::doctor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

constexpr int kWarmUps = 3;
constexpr int kPings = 20;
constexpr int64_t kTrialBytes = int64_t{1} << 20;
constexpr int64_t kMessageBytes = int64_t{4} << 20;
constexpr double kSecondsOfTraffic = 0.03;
constexpr int kMostMessages = 16;

// One pair, seen from one of its ends.
class Pair {
 public:
  Pair(Communicator& world, int peer, at::Device device)
      : world_(world),
        peer_(peer),
        small_(at::zeros({1}, at::dtype(at::kLong).device(device))),
        plan_(at::zeros({1}, at::kLong)),
        large_(at::zeros({kMessageBytes}, at::dtype(at::kByte).device(device))) {}

  // Of the first rank of the pair, which reads the clock.
  PairSpeed measure() {
    std::vector<double> round_trips;
    for (int i = 0; i < kWarmUps + kPings; ++i) {
      const auto begun = Clock::now();
      world_.send(small_, peer_).block();
      world_.recv(small_, peer_).block();
      if (i >= kWarmUps) round_trips.push_back(seconds_since(begun));
    }
    // How long a slow link takes is not known before: one message says how many there shall be.
    const double trial = timed(1, kTrialBytes);
    const double expected = trial * static_cast<double>(kMessageBytes / kTrialBytes);
    plan_.fill_(std::clamp(static_cast<int>(kSecondsOfTraffic / expected), 0, kMostMessages));
    world_.send(plan_, peer_).block();
    const int messages = plan_.item<int>();
    const double taken = messages == 0 ? trial : timed(messages, kMessageBytes);
    const int64_t bytes = messages == 0 ? kTrialBytes : messages * kMessageBytes;
    return {world_.rank(), peer_, median(round_trips) / 2 * 1e6,
            static_cast<double>(bytes) / taken};
  }

  // Of the second.
  void answer() {
    for (int i = 0; i < kWarmUps + kPings; ++i) {
      world_.recv(small_, peer_).block();
      world_.send(small_, peer_).block();
    }
    take(1, kTrialBytes);
    world_.recv(plan_, peer_).block();
    const int messages = plan_.item<int>();
    if (messages > 0) take(messages, kMessageBytes);
  }

 private:
  // Seconds until the peer has `count` messages and has said so.
  double timed(int count, int64_t bytes) {
    const auto begun = Clock::now();
    for (int i = 0; i < count; ++i) world_.send(large_.narrow(0, 0, bytes), peer_).block();
    world_.recv(small_, peer_).block();
    return seconds_since(begun);
  }
  void take(int count, int64_t bytes) {
    for (int i = 0; i < count; ++i) world_.recv(large_.narrow(0, 0, bytes), peer_).block();
    world_.send(small_, peer_).block();
  }

  Communicator& world_;
  int peer_;
  at::Tensor small_;
  at::Tensor plan_;
  at::Tensor large_;
};

}  // namespace

std::vector<PairSpeed> measure_pairs(Communicator& world, const PairPlan& plan, at::Device device) {
  std::vector<PairSpeed> own;
  for (const auto* rounds : {&plan.inside, &plan.across})
    for (const Round& round : *rounds) {
      for (const auto& [from, to] : round) {
        if (from == world.rank()) own.push_back(Pair(world, to, device).measure());
        if (to == world.rank()) Pair(world, from, device).answer();
      }
      world.barrier().block();
    }
  std::vector<PairSpeed> all;
  for (const auto& of_rank : gather(world, own))
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  return all;
}

}  // namespace tessera::doctor
