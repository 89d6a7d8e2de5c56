#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>

#include "doctor/facts/numbers.h"
#include "doctor/measure/gather.h"
#include "doctor/measure/measure.h"

namespace tessera::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.3;
constexpr int kLeast = 3;  // products, however long they take
constexpr int64_t kHostSize = 512;
constexpr int64_t kGpuSize = 4096;

double flops_of(const Device& device, at::ScalarType dtype) {
  const int64_t n = device.is_cpu() ? kHostSize : kGpuSize;
  const at::Tensor a = at::ones({n, n}, at::dtype(dtype).device(device.torch_device()));
  const at::Tensor b = at::ones_like(a);
  at::Tensor c = at::empty_like(a);
  const auto multiply = [&] {
    at::mm_out(c, a, b);
    device.synchronize();
  };
  multiply();  // the first one makes buffers
  std::vector<double> rates;
  const auto begun = Clock::now();
  for (auto now = begun; static_cast<int>(rates.size()) < kLeast ||
                         std::chrono::duration<double>(now - begun).count() < kSeconds;) {
    const auto before = now;
    multiply();
    now = Clock::now();
    const double work =
        2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    rates.push_back(work / std::chrono::duration<double>(now - before).count());
  }
  return median(std::move(rates));
}

}  // namespace

std::vector<ProductSpeed> measure_products(Communicator& world, const Device& device, int threads) {
  at::set_num_threads(threads);
  device.set_current();
  std::vector<ProductSpeed> own;
  for (const auto& [name, dtype] :
       {std::pair("fp32", at::kFloat), std::pair("bf16", at::kBFloat16)}) {
    world.barrier().block();
    own.push_back({world.rank(), name, flops_of(device, dtype)});
  }
  std::vector<ProductSpeed> all;
  for (const auto& of_rank : gather(world, own))
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  return all;
}

}  // namespace tessera::doctor
