#include "training/start/schedule_change.h"

#include <gtest/gtest.h>

#include "config/save.h"

namespace tessera {
namespace {

Config config_of(int64_t training_steps, int64_t schedule_steps) {
  Config config;
  config.training.steps = training_steps;
  config.schedule = {ScheduleType::kCosine, 100, 0.05, schedule_steps};
  config.optimizer.lr = 3e-3;
  return config;
}

TEST(Rates, ComeBackFromASavedConfiguration) {
  Config config = config_of(800, 0);
  config.schedule.type = ScheduleType::kLinear;
  const Rates rates = saved_rates(nlohmann::json::parse(to_json(config).dump()));
  EXPECT_EQ(rates.schedule.type, ScheduleType::kLinear);
  EXPECT_EQ(rates.schedule.warmup_steps, 100);
  EXPECT_EQ(rates.schedule.min_lr_ratio, 0.05);
  EXPECT_EQ(rates.schedule.steps, 800);
  EXPECT_EQ(rates.peak, 3e-3);
  nlohmann::json older = to_json(config);  // before there was the key
  older["schedule"].erase("steps");
  EXPECT_EQ(saved_rates(older).schedule.steps, 800);
  EXPECT_EQ(saved_rates(to_json(config_of(1600, 800))).schedule.steps, 800);
}

TEST(Rates, MoreStepsOfTheRunChangeNone) {
  EXPECT_FALSE(
      rate_change(rates_of(config_of(800, 800)), rates_of(config_of(1600, 800)), 800, 1600));
  EXPECT_EQ(rates_of(config_of(1600, 800)).at(1600), 0.05 * 3e-3);
}

TEST(Rates, ALongerScheduleIsSaidWithBothRates) {
  const auto text =
      rate_change(rates_of(config_of(800, 800)), rates_of(config_of(1600, 1600)), 800, 1600);
  ASSERT_TRUE(text);
  // As in the quickstart: from the minimum up again.
  EXPECT_NE(text->find("step 801 is 1.721e-03; the saved run would have had 1.500e-04"),
            std::string::npos)
      << *text;
  EXPECT_NE(text->find("steps 800, now 1600"), std::string::npos) << *text;
}

TEST(Rates, ADifferenceThatComesLaterIsFound) {
  Config end = config_of(800, 800);
  end.schedule.min_lr_ratio = 0.5;
  const auto text = rate_change(rates_of(config_of(800, 800)), rates_of(end), 50, 800);
  ASSERT_TRUE(text);  // warm-up is the same for both
  EXPECT_NE(text->find("step 101 is"), std::string::npos) << *text;
  Config peak = config_of(800, 800);
  peak.optimizer.lr = 1e-3;
  EXPECT_TRUE(rate_change(rates_of(config_of(800, 800)), rates_of(peak), 799, 800));
  EXPECT_FALSE(rate_change(rates_of(config_of(800, 800)), rates_of(peak), 800, 800));
}

}  // namespace
}  // namespace tessera
