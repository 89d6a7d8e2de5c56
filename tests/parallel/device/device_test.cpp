#include "parallel/device/device.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/device/cuda_support.h"

namespace tessera {
namespace {

// The order that stream.h describes, written once: what the executor does on either device.
TEST(Device, OnTheHostTheOrderOfAStepIsTheOrderOfTheProgram) {
  const Device device;
  const Stream compute = device.current_stream();
  const Stream gather = device.new_stream(StreamPriority::kHigh);
  const Stream copy = device.new_stream();
  Event released = device.new_event(), gathered = device.new_event(), copied = device.new_event();
  device.set_current();

  const auto shard = device.empty_pinned({4}, at::kFloat);
  const auto slot = device.empty({4}, at::kFloat);
  shard.fill_(3);
  {
    const StreamScope scope(copy);
    slot.copy_(shard, /*non_blocking=*/true);
    copied.record(copy);
  }
  gather.wait(copied);
  {
    const StreamScope scope(gather);
    slot.mul_(2);
    gathered.record(gather);
  }
  compute.wait(gathered);
  slot.add_(1);
  released.record(compute);
  gather.wait(released);
  EXPECT_TRUE(released.passed());
  released.synchronize();
  EXPECT_TRUE(gather.idle());
  gather.synchronize();
  device.synchronize();
  EXPECT_TRUE(at::equal(slot, at::full({4}, 7.f)));
}

TEST(Device, TheHostHasPlainMemoryAndNoHandles) {
  const Device device;
  EXPECT_TRUE(device.is_cpu());
  EXPECT_EQ(device.name(), "cpu");
  EXPECT_EQ(device.torch_device(), at::Device(at::kCPU));
  EXPECT_EQ(device.current_stream().handle(), nullptr);
  EXPECT_EQ(device.new_event().gpu(), nullptr);
  const auto memory = device.empty_pinned({2, 3}, at::kBFloat16);
  EXPECT_FALSE(memory.is_pinned());
  EXPECT_EQ(memory.scalar_type(), at::kBFloat16);
  EXPECT_EQ(memory.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_TRUE(device.empty({5}, at::kLong).is_cpu());
}

TEST(Device, AnEventCanBeRecordedAgainAndMoved) {
  const Device device;
  Event event = device.new_event();
  EXPECT_TRUE(event.passed()) << "never recorded";
  event.record(device.current_stream());
  event.record(device.new_stream());
  const Event moved = std::move(event);
  device.current_stream().wait(moved);
  EXPECT_TRUE(moved.passed());
}

TEST(Device, MemoryThatIsNotToBeHadIsAnErrorThatNamesDeviceAndBytes) {
  try {
    Device().empty({int64_t{1} << 48}, at::kDouble);
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("[device] cpu: 2251799813685248 bytes of device memory"), std::string::npos)
        << text;
  }
}

TEST(Device, AGpuThatThisProcessDoesNotSeeIsAUserError) {
  const int beyond = visible_gpus();
  try {
    Device::cuda(beyond);
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string text = error.what();
    const std::string reason = !built_with_cuda() ? "built without CUDA; configure with `cmake"
                               : beyond == 0      ? "this process sees no GPU"
                                                  : "this process sees";
    EXPECT_EQ(text.find(fmt::format("[device] cuda:{}: ", beyond)), 0U) << text;
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tessera
