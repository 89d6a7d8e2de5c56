#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace tessera {

void Philox::normals(uint64_t stream, uint64_t first, double std, float* out, int64_t count) const {
  constexpr double kScale = 0x1p-32;
  int64_t done = 0;
  while (done < count) {
    const uint64_t index = first + static_cast<uint64_t>(done);
    const auto words = block(index / 4, stream);
    float four[4];
    for (int pair = 0; pair < 2; ++pair) {
      const double u = (words[2 * pair] + 0.5) * kScale;  // in (0, 1): the logarithm is finite
      const double angle = 2.0 * std::numbers::pi * ((words[2 * pair + 1] + 0.5) * kScale);
      const double radius = std * std::sqrt(-2.0 * std::log(u));
      four[2 * pair] = static_cast<float>(radius * std::cos(angle));
      four[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
    }
    for (uint64_t lane = index % 4; lane < 4 && done < count; ++lane) out[done++] = four[lane];
  }
}

}  // namespace tessera
