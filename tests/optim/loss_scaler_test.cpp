#include "optim/loss_scaler.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

LossScaleConfig dynamic(double initial, int64_t interval, int64_t hysteresis) {
  return {LossScaleMode::kDynamic, 1.0, initial, interval, hysteresis};
}

TEST(LossScaler, NoneOutsideFp16) {
  LossScaler scaler({}, /*fp16=*/false);
  EXPECT_FALSE(scaler.enabled());
  EXPECT_EQ(scaler.scale(), 1.0);
  EXPECT_FALSE(scaler.explains_overflow());
  EXPECT_FALSE(scaler.step_overflowed());
  for (int i = 0; i < 5000; ++i) EXPECT_FALSE(scaler.step_was_good());
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, AutoIsDynamicInFp16WithTheDocumentedDefaults) {
  LossScaler scaler({}, /*fp16=*/true);
  EXPECT_TRUE(scaler.enabled());
  EXPECT_EQ(scaler.scale(), 65536.0);
  for (int i = 0; i < 1999; ++i) EXPECT_FALSE(scaler.step_was_good());
  EXPECT_TRUE(scaler.step_was_good());
  EXPECT_EQ(scaler.scale(), 131072.0);
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 65536.0);
}

TEST(LossScaler, AnOverflowStartsTheCountAnew) {
  LossScaler scaler(dynamic(8.0, 3, 1), true);
  scaler.step_was_good();
  scaler.step_was_good();
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 4.0);
  scaler.step_was_good();
  scaler.step_was_good();
  EXPECT_EQ(scaler.scale(), 4.0);
  EXPECT_TRUE(scaler.step_was_good());
  EXPECT_EQ(scaler.scale(), 8.0);
}

TEST(LossScaler, HysteresisIsMegatrons) {
  LossScaler scaler(dynamic(64.0, 2, 3), true);
  EXPECT_FALSE(scaler.step_overflowed());
  EXPECT_FALSE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 64.0);
  EXPECT_TRUE(scaler.step_overflowed());  // the third, and each one after it
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 16.0);
  scaler.step_was_good();
  EXPECT_TRUE(scaler.step_overflowed());  // a good step does not reset it
  EXPECT_EQ(scaler.scale(), 8.0);
  scaler.step_was_good();
  EXPECT_TRUE(scaler.step_was_good());  // growth does
  EXPECT_EQ(scaler.scale(), 16.0);
  EXPECT_FALSE(scaler.step_overflowed());
}

TEST(LossScaler, StopsAtOne) {
  LossScaler scaler(dynamic(3.0, 100, 1), true);
  EXPECT_TRUE(scaler.explains_overflow());
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_TRUE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 1.0);
  EXPECT_FALSE(scaler.explains_overflow());
  EXPECT_FALSE(scaler.step_overflowed());
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, AStaticScaleStays) {
  LossScaler scaler({LossScaleMode::kStatic, 128.0}, true);
  EXPECT_TRUE(scaler.enabled());
  EXPECT_FALSE(scaler.explains_overflow());
  EXPECT_FALSE(scaler.step_overflowed());
  for (int i = 0; i < 5000; ++i) scaler.step_was_good();
  scaler.restore({4.0, 0, 1});
  EXPECT_EQ(scaler.scale(), 128.0);
}

TEST(LossScaler, GoesOnFromASavedState) {
  LossScaler one(dynamic(64.0, 3, 2), true), two(dynamic(64.0, 3, 2), true);
  one.step_was_good();
  one.step_overflowed();
  one.step_was_good();
  two.restore(one.state());
  for (LossScaler* scaler : {&one, &two}) {
    EXPECT_FALSE(scaler->step_was_good());
    EXPECT_TRUE(scaler->step_was_good());
  }
  EXPECT_EQ(one.state(), two.state());
}

}  // namespace
}  // namespace tessera
