// What the loop does after which step.
#include "training/loop/timetable.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tessera {
namespace {

Config ten_steps() {
  Config config;
  config.training.steps = 10;
  config.training.log_every = 0;
  config.checkpoint.every = 0;
  config.eval.every = 0;
  return config;
}

std::vector<int64_t> steps_that(const std::function<bool(int64_t)>& due) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 10; ++step)
    if (due(step)) steps.push_back(step);
  return steps;
}

using Steps = std::vector<int64_t>;

TEST(Timetable, IntervalsOfZeroAreNever) {
  const Timetable times(ten_steps(), /*validates=*/true);
  EXPECT_EQ(steps_that([&](int64_t s) { return times.logs(s); }), Steps{});
  EXPECT_EQ(steps_that([&](int64_t s) { return times.validates(s); }), Steps{});
  EXPECT_EQ(steps_that([&](int64_t s) { return times.stops(s); }), Steps{});
  EXPECT_EQ(steps_that([&](int64_t s) { return times.compares_replicas(s); }), Steps{});
  EXPECT_EQ(steps_that([&](int64_t s) { return times.saves(s); }), Steps{10});
}

TEST(Timetable, TheLastStepIsSavedAndValidatedOutsideTheIntervals) {
  Config config = ten_steps();
  config.training.log_every = 4;
  config.checkpoint.every = 3;
  config.eval.every = 7;
  config.debug.compare_replicas_every = 5;
  config.training.stop_after = 6;
  const Timetable times(config, /*validates=*/true);
  EXPECT_EQ(steps_that([&](int64_t s) { return times.logs(s); }), (Steps{4, 8}));
  EXPECT_EQ(steps_that([&](int64_t s) { return times.saves(s); }), (Steps{3, 6, 9, 10}));
  EXPECT_EQ(steps_that([&](int64_t s) { return times.validates(s); }), (Steps{7, 10}));
  EXPECT_EQ(steps_that([&](int64_t s) { return times.compares_replicas(s); }), (Steps{5, 10}));
  EXPECT_EQ(steps_that([&](int64_t s) { return times.stops(s); }), Steps{6});
  EXPECT_FALSE(times.is_last(9));
  EXPECT_TRUE(times.is_last(10));
  EXPECT_TRUE(times.is_last(11));  // a run that was made shorter
}

TEST(Timetable, WithoutValidationDataNothingIsValidated) {
  Config config = ten_steps();
  config.eval.every = 2;
  const Timetable times(config, /*validates=*/false);
  EXPECT_EQ(steps_that([&](int64_t s) { return times.validates(s); }), Steps{});
}

}  // namespace
}  // namespace tessera
