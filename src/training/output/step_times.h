#pragma once

#include <cstdint>

namespace tessera {

// Mean and spread of the times of some steps: what a line of the console says of all steps since
// the last one. Single steps stand in metrics.jsonl.
class StepTimes {
 public:
  void add(double step_ms, double tokens_per_s);

  double mean_ms() const;       // 0 of no steps
  double deviation_ms() const;  // the standard deviation; 0 of fewer than two
  double tokens_per_s() const;  // of all steps together

 private:
  int64_t steps_ = 0;
  double mean_ms_ = 0.0;
  double squares_ = 0.0;  // of the distances from the mean
  double tokens_ = 0.0;
};

}  // namespace tessera
