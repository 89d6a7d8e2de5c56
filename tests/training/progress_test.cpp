#include "training/loop/progress.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

TEST(Ranges, JoinWhatTouches) {
  std::vector<SampleRange> ranges;
  add_range(ranges, {8, 16});
  add_range(ranges, {24, 32});
  EXPECT_EQ(ranges, (std::vector<SampleRange>{{8, 16}, {24, 32}}));
  add_range(ranges, {0, 4});
  EXPECT_EQ(ranges, (std::vector<SampleRange>{{0, 4}, {8, 16}, {24, 32}}));
  add_range(ranges, {16, 26});
  EXPECT_EQ(ranges, (std::vector<SampleRange>{{0, 4}, {8, 32}}));
  add_range(ranges, {9, 10});
  EXPECT_EQ(ranges, (std::vector<SampleRange>{{0, 4}, {8, 32}}));
}

TEST(NextBatch, PassesOverSkippedSamples) {
  const Sampler in_order(10, 1, /*shuffle=*/false);
  const GlobalBatch plain = next_batch(in_order, 8, 4, {});
  EXPECT_EQ(plain.samples, (std::vector<int64_t>{8, 9, 0, 1}));  // into the next epoch
  EXPECT_EQ(plain.counters, (SampleRange{8, 12}));
  const std::vector<SampleRange> skipped = {{0, 4}, {5, 7}, {8, 9}};
  const GlobalBatch first = next_batch(in_order, 0, 3, skipped);
  EXPECT_EQ(first.samples, (std::vector<int64_t>{4, 7, 9}));
  EXPECT_EQ(first.counters, (SampleRange{0, 10}));
  const GlobalBatch inside = next_batch(in_order, 6, 1, skipped);  // a start within a range
  EXPECT_EQ(inside.samples, std::vector<int64_t>{7});
  EXPECT_EQ(inside.counters, (SampleRange{6, 8}));
}

TEST(Progress, SurvivesAManifest) {
  Progress progress;
  progress.step = 12;
  progress.position = 208;
  progress.updates = 10;
  progress.failures_in_a_row = 2;
  progress.skipped = {{16, 32}, {48, 64}};
  progress.loss_scale = {4096.0, 7, 2};
  progress.tokens = 3000;
  progress.rows = 190;
  progress.last_failed_step = 11;
  progress.rollbacks = 3;
  Manifest manifest;
  record_progress(progress, manifest);
  manifest.training = nlohmann::json::parse(manifest.training.dump());
  const Progress read = progress_of(manifest);
  EXPECT_EQ(read.step, 12);
  EXPECT_EQ(read.position, 208);
  EXPECT_EQ(read.updates, 10);
  EXPECT_EQ(read.failures_in_a_row, 2);
  EXPECT_EQ(read.skipped, progress.skipped);
  EXPECT_EQ(read.loss_scale, progress.loss_scale);
  EXPECT_EQ(read.tokens, 3000);
  EXPECT_EQ(read.rows, 190);
  EXPECT_EQ(read.last_failed_step, 11);
  EXPECT_EQ(read.rollbacks, 3);
}

TEST(Progress, CountersOfOlderProgramsFollowFromStepAndBatch) {
  Progress progress;
  progress.step = 12;
  progress.position = 208;  // 16 of them left out
  progress.tokens = 12 * 16 * 32;
  Manifest manifest;
  record_progress(progress, manifest);
  for (const char* key : {"rows", "last_failed_step", "rollbacks"}) manifest.training.erase(key);
  manifest.config = {{"training", {{"global_batch_size", 16}}}};
  const Progress read = progress_of(manifest);
  EXPECT_EQ(read.rows, 192);
  EXPECT_EQ(read.tokens, 12 * 16 * 32);
  EXPECT_EQ(read.rollbacks, 0);
  EXPECT_FALSE(read.loss_scale);
  // Where none was in use they wrote this.
  manifest.training["loss_scale"] = {{"scale", 1.0}, {"good_steps", 0}, {"hysteresis_left", 1}};
  EXPECT_FALSE(progress_of(manifest).loss_scale);
}

TEST(Progress, OfVersion1EveryStepWasAnUpdate) {
  Manifest manifest;
  manifest.step = 5;
  manifest.samples = 80;
  const Progress read = progress_of(manifest);
  EXPECT_EQ(read.updates, 5);
  EXPECT_EQ(read.position, 80);
  EXPECT_TRUE(read.skipped.empty());
}

TEST(Progress, WhatCannotBeReadIsAnError) {
  Manifest manifest;
  record_progress({}, manifest);
  const auto error = [&](const char* key, nlohmann::json value) -> std::string {
    Manifest forged = manifest;
    forged.training[key] = std::move(value);
    try {
      progress_of(forged);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(error("updates", "ten").find("'training' cannot be read"), std::string::npos);
  EXPECT_NE(error("skipped_samples", {{8, 8}}).find("[8,8], which is no range"), std::string::npos);
  EXPECT_NE(error("loss_scale", 3).find("'training' cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace tessera
