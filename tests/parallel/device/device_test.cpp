#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/device/choose_gpu.h"
#include "parallel/device/cuda_support.h"
#include "parallel/device/device.h"
#include "parallel/device/host_copy.h"

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

TEST(Device, OnTheHostNothingIsCopied) {
  const Device device = Device::of(at::kCPU);
  const at::Tensor tensor = at::arange(6, at::kLong);
  EXPECT_TRUE(device.upload(tensor).is_same(tensor));
  EXPECT_FALSE(device.upload({}).defined());
  EXPECT_TRUE(at::equal(device.zeros({3}, at::kDouble), at::zeros({3}, at::kDouble)));
  EXPECT_EQ(device.memory().peak, 0);
}

TEST(Device, CopiesInChunksMoveEveryElementOnce) {
  for (const int64_t numel : {0, 1, 4, 5, 11}) {
    const at::Tensor from = at::arange(numel, at::kFloat), to = at::full({numel}, -1.f);
    copy_in_chunks(to, from, at::empty({4}, at::kFloat), Stream());
    EXPECT_TRUE(at::equal(to, from)) << numel;
  }
}

TEST(Device, EachRankOfANodeTakesAGpuOfItsOwn) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(choose_gpu(rank, 4, 4), rank);
  EXPECT_EQ(choose_gpu(1, 2, 8), 1);
  // A launcher that shows each rank its own GPU alone.
  EXPECT_EQ(choose_gpu(3, 4, 1), 0);
  try {
    choose_gpu(0, 5, 4);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("5 ranks on this node, but 4 GPUs are visible"),
              std::string::npos)
        << error.what();
  }
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
