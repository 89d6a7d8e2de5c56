#include <chrono>

#include "doctor/facts/numbers.h"
#include "doctor/measure/gather.h"
#include "doctor/measure/measure.h"

namespace tessera::doctor {

std::vector<double> measure_clocks(Communicator& world) {
  constexpr int kTimes = 3;
  std::vector<std::vector<double>> ahead(static_cast<size_t>(world.size()));
  for (int time = 0; time < kTimes; ++time) {
    world.barrier().block();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto read =
        gather(world, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    for (size_t rank = 0; rank < read.size(); ++rank)
      ahead[rank].push_back(static_cast<double>(read[rank] - read[0]) * 1e-9);
  }
  std::vector<double> middle;
  for (std::vector<double>& of_rank : ahead) middle.push_back(median(std::move(of_rank)));
  return middle;
}

}  // namespace tessera::doctor
