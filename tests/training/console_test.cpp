#include "training/output/console.h"

#include <gtest/gtest.h>

#include <cmath>

#include "training/output/step_times.h"

namespace tessera {
namespace {

TEST(Console, ParametersHaveTheUnitThatFits) {
  const std::pair<int64_t, const char*> cases[] = {{0, "0 parameters"},
                                                   {1, "1 parameter"},
                                                   {999, "999 parameters"},
                                                   {1000, "1.0K parameters"},
                                                   {12345, "12.3K parameters"},
                                                   {999949, "999.9K parameters"},
                                                   {999950, "1.00M parameters"},
                                                   {3084544, "3.08M parameters"},
                                                   {999994999, "999.99M parameters"},
                                                   {999995000, "1.00B parameters"},
                                                   {13015864320, "13.02B parameters"}};
  for (const auto& [count, text] : cases) EXPECT_EQ(parameters_text(count), text);
}

TEST(StepTimes, AreMeanAndSpreadOfTheStepsTogether) {
  StepTimes times;
  EXPECT_EQ(times.mean_ms(), 0);
  EXPECT_EQ(times.deviation_ms(), 0);
  EXPECT_EQ(times.tokens_per_s(), 0);
  times.add(100, 10000);  // 1000 tokens a step
  EXPECT_DOUBLE_EQ(times.mean_ms(), 100);
  EXPECT_EQ(times.deviation_ms(), 0);
  EXPECT_DOUBLE_EQ(times.tokens_per_s(), 10000);
  times.add(200, 5000);
  times.add(300, 1000 / 0.3);
  EXPECT_DOUBLE_EQ(times.mean_ms(), 200);
  EXPECT_DOUBLE_EQ(times.deviation_ms(), 100);
  EXPECT_DOUBLE_EQ(times.tokens_per_s(), 5000);  // of the mean time, not the mean of the rates
}

}  // namespace
}  // namespace tessera
