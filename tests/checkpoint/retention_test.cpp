#include "checkpoint/store/retention.h"

#include <limits>

#include "checkpoint/store/validation_losses.h"
#include "checkpoint_testing.h"

namespace tessera::testing {
namespace {

using Steps = std::vector<int64_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Steps retired(const RetentionRules& rules, const Steps& whole,
              const std::map<int64_t, double>& losses = {},
              std::optional<int64_t> just_saved = std::nullopt,
              std::optional<int64_t> just_loaded = std::nullopt) {
  return steps_to_retire(rules, {whole, losses, just_saved, just_loaded});
}

TEST(Retention, TheNewestStayByNumberAndZeroKeepsAll) {
  const Steps steps = {100000000, 9, 99999999, 11, 10};
  EXPECT_EQ(retired(2, steps), (Steps{9, 10, 11}));
  EXPECT_EQ(retired(5, steps), Steps{});
  EXPECT_EQ(retired(100, steps), Steps{});
  EXPECT_EQ(retired(0, steps), Steps{});
  EXPECT_EQ(retired(1, {}), Steps{});
  EXPECT_EQ(retired(1, {7}), Steps{});
  EXPECT_EQ(retired({0, 2, 1}, steps, {{9, 1.0}}), Steps{});
}

TEST(Retention, WhatWasJustSavedIsTheNewestWhateverItsNumber) {
  const Steps steps = {50, 100, 200, 300};
  EXPECT_EQ(retired(1, steps, {}, 50), (Steps{100, 200, 300}));
  EXPECT_EQ(retired(2, steps, {}, 50), (Steps{100, 200}));
  // It is gone, or not whole: then it does not count as one that stays.
  EXPECT_EQ(retired(1, steps, {}, 400), (Steps{50, 100, 200}));
}

TEST(Retention, WhatWasJustLoadedStaysBesideTheOthers) {
  const Steps steps = {10, 20, 30};
  EXPECT_EQ(retired(1, steps, {}, std::nullopt, 10), Steps{20});
  EXPECT_EQ(retired(1, steps, {}, std::nullopt, 30), (Steps{10, 20}));
  EXPECT_EQ(retired(1, steps, {}, 20, 10), Steps{30});
}

TEST(Retention, MultiplesStayForEver) {
  const Steps steps = {100, 200, 300, 400, 500, 525};
  EXPECT_EQ(retired({1, 200}, steps), (Steps{100, 300, 500}));
  EXPECT_EQ(retired({2, 500}, steps), (Steps{100, 200, 300, 400}));
}

TEST(Retention, TheBestStayByLoss) {
  const Steps steps = {1, 2, 3, 4, 5};
  const std::map<int64_t, double> losses = {{0, 0.1}, {1, 2.0}, {2, 1.0}, {3, 1.5}, {4, 3.0}};
  EXPECT_EQ(retired({1, 0, 1}, steps, losses), (Steps{1, 3, 4}));
  EXPECT_EQ(retired({1, 0, 2}, steps, losses), (Steps{1, 4}));
  EXPECT_EQ(retired({1, 0, 9}, steps, losses), Steps{});
  // The best may be among the newest: then no other takes its place.
  EXPECT_EQ(retired({2, 0, 1}, steps, {{4, 0.5}, {1, 1.0}}), (Steps{1, 2, 3}));
  // Without a loss a step is not among the best.
  EXPECT_EQ(retired({1, 0, 2}, steps, {}), (Steps{1, 2, 3, 4}));
}

TEST(Retention, OfEqualLossesTheNewerStays) {
  EXPECT_EQ(retired({1, 0, 1}, {1, 2, 3, 4}, {{1, 2.0}, {2, 2.0}, {3, 2.0}, {4, 5.0}}),
            (Steps{1, 2}));
  EXPECT_EQ(retired({1, 0, 1}, {1, 2, 3}, {{1, 0.0}, {2, -0.0}}), Steps{1});
}

TEST(Retention, ALossThatIsNotFiniteIsNeverAmongTheBest) {
  for (const double loss : {kNan, -kNan, kInfinity, -kInfinity})
    EXPECT_EQ(retired({1, 0, 2}, {1, 2, 3, 4}, {{1, loss}, {2, 9.0}, {3, 8.0}, {4, loss}}),
              Steps{1})
        << loss;
}

TEST(Retention, RulesAddUp) {
  Steps steps;
  std::map<int64_t, double> losses;
  for (int64_t step = 1; step <= 12; ++step) {
    steps.push_back(step);
    losses[step] = step == 3 ? 0.5 : 1.0 + static_cast<double>(step);
  }
  EXPECT_EQ(retired({2, 5, 2}, steps, losses), (Steps{2, 4, 6, 7, 8, 9}));  // 3, 1; 5, 10; 11, 12
}

// Whatever was saved, loaded and validated: something whole stays, and so does what must.
TEST(Retention, AtLeastOneStays) {
  const Steps steps = {3, 6, 9};
  const std::vector<std::optional<int64_t>> any = {std::nullopt, 3, 6, 9, 12};
  for (const int keep : {1, 2})
    for (const auto& saved : any)
      for (const auto& loaded : any) {
        const Steps gone = retired({keep, 0, 1}, steps, {{6, kNan}}, saved, loaded);
        EXPECT_LE(gone.size(), 3u - static_cast<size_t>(keep));
        for (const auto& step : {saved, loaded})
          EXPECT_TRUE(!step || std::find(gone.begin(), gone.end(), *step) == gone.end());
      }
}

class ValidationLosses : public Scratch {};

TEST_F(ValidationLosses, AreKeptByStepWithAllTheirBits) {
  EXPECT_TRUE(read_validation_losses(dir_).empty());
  forget_validation_losses(dir_, 0);
  EXPECT_FALSE(fs::exists(dir_ / kValidationFile));
  const std::map<int64_t, double> losses = {
      {1, 2.0}, {20, 0.1 + 0.2}, {100, 5e-324}, {100000000000, 1e300}};
  for (const auto& [step, loss] : losses) record_validation_loss(dir_, step, loss);
  EXPECT_EQ(read_validation_losses(dir_), losses);
  EXPECT_EQ(slurp(dir_ / kValidationFile),
            "{\n  \"losses\": {\n    \"1\": 2,\n    \"20\": 0.30000000000000004,\n"
            "    \"100\": 5e-324,\n    \"100000000000\": 1e+300\n  }\n}\n");
  record_validation_loss(dir_, 20, 7.5);
  EXPECT_EQ(read_validation_losses(dir_).at(20), 7.5);
  record_validation_loss(dir_, 20, kNan);  // and no loss of an earlier time is left in its place
  EXPECT_FALSE(read_validation_losses(dir_).contains(20));
  forget_validation_losses(dir_, 100);
  EXPECT_EQ(read_validation_losses(dir_), (std::map<int64_t, double>{{1, 2.0}, {100, 5e-324}}));
  forget_validation_losses(dir_, 0);
  EXPECT_TRUE(read_validation_losses(dir_).empty());
}

TEST_F(ValidationLosses, ADamagedFileIsNamed) {
  for (const char* text : {"", "{", "[]", "{\"losses\": []}", "{\"losses\": {\"x\": 1}}",
                           "{\"losses\": {\"-1\": 1}}", "{\"losses\": {\"1.5\": 1}}",
                           "{\"losses\": {\"1\": \"2\"}}", "{\"losses\": {\"1\": 1, \"1\": 2}}"}) {
    spit(dir_ / kValidationFile, text);
    const std::string message = user_error([&] { read_validation_losses(dir_); });
    EXPECT_TRUE(contains(message, (dir_ / kValidationFile).string() + " cannot be used")) << text;
    EXPECT_TRUE(contains(message, "remove it")) << text;
  }
}

}  // namespace
}  // namespace tessera::testing
