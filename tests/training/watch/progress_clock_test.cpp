#include "training/watch/progress_clock.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// Steps of `seconds` each, seen every tenth of a second, with progress at each look.
void run_steps(ProgressClock& clock, PlaceView& place, int count, double seconds) {
  for (int i = 0; i < count; ++i) {
    ++place.step;
    for (double passed = 0.0; passed < seconds - 0.05; passed += 0.1) {
      ++place.progress;
      clock.look(place, 0.1);
    }
  }
}

TEST(ProgressClock, CountsOnlyTimeInWhichSomebodyLooks) {
  ProgressClock clock({});
  PlaceView place{Phase::kOpen, 0, -1, 1};
  clock.look(place, 0.1);
  clock.look(place, 0.2);
  EXPECT_DOUBLE_EQ(clock.quiet(), 0.2);
  clock.look(place, 3600.0);  // the machine was suspended
  EXPECT_LT(clock.quiet(), 1.0);
  ++place.progress;
  clock.look(place, 0.1);
  EXPECT_DOUBLE_EQ(clock.quiet(), 0.0);
}

TEST(ProgressClock, EachPhaseHasItsLimit) {
  WatchdogSection limits;
  limits.start = 1;
  limits.first_step = 2;
  limits.step = 3;
  limits.validation = 4;
  limits.save = 5;
  ProgressClock clock(limits);
  const auto limit_at = [&](Phase phase, int64_t step) {
    clock.look({phase, step, -1, 0}, 0.1);
    return clock.limit();
  };
  for (const Phase phase :
       {Phase::kLaunch, Phase::kConnect, Phase::kOpen, Phase::kPlan, Phase::kLoad})
    EXPECT_EQ(limit_at(phase, 0), 1.0) << phase_name(phase);
  EXPECT_EQ(limit_at(Phase::kValidate, 0), 4.0);
  // A start that goes on from step 100.
  EXPECT_EQ(limit_at(Phase::kData, 101), 2.0);
  EXPECT_EQ(limit_at(Phase::kSum, 101), 2.0);
  EXPECT_EQ(clock.key(), "watchdog.first_step");
  EXPECT_EQ(limit_at(Phase::kSave, 101), 5.0);
  EXPECT_EQ(limit_at(Phase::kData, 102), 3.0);
  EXPECT_EQ(clock.key(), "watchdog.step");
  EXPECT_EQ(limit_at(Phase::kValidate, 102), 4.0);
  EXPECT_EQ(limit_at(Phase::kClose, 102), 5.0);
}

TEST(ProgressClock, AutoIsTwentyMedianStepsAndAtLeastAMinute) {
  ProgressClock clock({});
  PlaceView place{Phase::kForward, 0, 0, 0};
  run_steps(clock, place, 2, 1.0);
  EXPECT_EQ(clock.limit(), 600.0);  // too few steps to know
  run_steps(clock, place, 3, 1.0);
  EXPECT_EQ(clock.limit(), 60.0);
  run_steps(clock, place, 1, 100.0);  // one step with a save in it changes nothing
  EXPECT_EQ(clock.limit(), 60.0);
  run_steps(clock, place, 40, 5.0);
  EXPECT_NEAR(clock.limit(), 100.0, 5.0);
  EXPECT_EQ(clock.key(), "watchdog.step: auto");
}

TEST(ProgressClock, ZeroTurnsALimitOff) {
  WatchdogSection limits;
  limits.step = 0;
  ProgressClock clock(limits);
  PlaceView place{Phase::kForward, 0, 0, 0};
  run_steps(clock, place, 5, 1.0);
  EXPECT_EQ(clock.limit(), 0.0);
}

TEST(Place, IsOneViewOfPhaseStepAndStage) {
  Place place;
  EXPECT_EQ(place.view().text(), "before the start of MPI");
  place.enter(Phase::kForward, 1'000'000'000'000 - 1);
  place.stage(3);
  const PlaceView view = place.view();
  EXPECT_EQ(view.phase, Phase::kForward);
  EXPECT_EQ(view.step, 1'000'000'000'000 - 1);
  EXPECT_EQ(view.stage, 3);
  place.enter(Phase::kSum);
  EXPECT_EQ(place.view().step, view.step);
  EXPECT_EQ(place.view().stage, -1);
  EXPECT_GT(place.view().progress, view.progress);
  place.advance();
  EXPECT_EQ(place.view().text(), "at step 999999999999 in the sums over ranks");
}

}  // namespace
}  // namespace tessera
