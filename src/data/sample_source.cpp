#include "data/sample_source.h"

namespace tessera {

int64_t counted_targets(const SampleSource& source, const std::vector<int64_t>& samples) {
  int64_t sum = 0;
  for (const int64_t sample : samples) sum += source.counted_targets(sample);
  return sum;
}

}  // namespace tessera
