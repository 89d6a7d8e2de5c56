#include "kernels/optimizers.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "kernel_test.h"
#include "support/folders.h"

namespace tessera::kernels {
namespace {

using nlohmann::json;

class Optimizers : public KernelTest {
 protected:
  at::Tensor tensor_of(const json& values, at::ScalarType dtype) {
    const auto numbers = values.get<std::vector<double>>();
    return guarded_copy(at::tensor(numbers, at::kDouble).to(dtype));
  }
  at::Tensor zeros(int64_t numel, at::ScalarType dtype) {
    return guarded_copy(at::zeros({numel}, dtype));
  }
};

AdamScalars adam_scalars(const json& options, bool decoupled, int64_t step) {
  return {options.at("lr"),
          options.at("betas").at(0),
          options.at("betas").at(1),
          options.at("eps"),
          options.at("weight_decay"),
          decoupled,
          step};
}

GradScalars clipped_at(double limit) {
  return limit > 0 ? GradScalars{.limit = limit} : GradScalars{};
}

// data/optimizers.json holds what torch.optim computed in fp64.
TEST_P(Optimizers, FollowTorchOptim) {
  std::ifstream file(TESSERA_SOURCE_DIR "/tests/kernels/data/optimizers.json");
  const json expected = json::parse(file);
  ASSERT_EQ(expected.at("cases").size(), 7U);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto& [name, options] : expected.at("cases").items()) {
      SCOPED_TRACE(name);
      const auto master = tensor_of(expected.at("start"), dtype);
      const int64_t numel = master.numel();
      const GradScalars clip = clipped_at(options.at("clip_grad_value"));
      const bool is_adam = name.starts_with("adam");
      const bool has_momentum = options.contains("momentum_buffer");
      const auto first = zeros(numel, dtype), second = zeros(numel, dtype);
      int64_t step = 0;
      for (const json& values : expected.at("gradients")) {
        const auto grad = tensor_of(values, dtype);
        if (is_adam) {
          adam(master, grad, first, second,
               adam_scalars(options, name.starts_with("adamw"), ++step), clip);
        } else {
          sgd(master, grad, has_momentum ? first : at::Tensor(),
              {options.at("lr"), options.value("momentum", 0.0), options.value("weight_decay", 0.0),
               options.value("nesterov", false)},
              clip);
        }
      }
      expect_close(master, tensor_of(options.at("weight"), at::kDouble), "weight");
      if (is_adam) {
        expect_close(first, tensor_of(options.at("exp_avg"), at::kDouble), "exp_avg");
        expect_close(second, tensor_of(options.at("exp_avg_sq"), at::kDouble), "exp_avg_sq");
      } else if (has_momentum) {
        expect_close(first, tensor_of(options.at("momentum_buffer"), at::kDouble), "momentum");
      }
    }
  }
}

TEST_P(Optimizers, ScaleTheGradientFirst) {
  const auto grad = randn({100}, at::kFloat);
  const auto halved = guarded_copy(grad * 0.5);
  const AdamScalars s{1e-2, 0.9, 0.95, 1e-8, 0.1, true, 1};
  const auto a = randn({100}, at::kFloat);
  const auto b = guarded_copy(a);
  const auto ma = zeros(100, at::kFloat), va = zeros(100, at::kFloat);
  const auto mb = zeros(100, at::kFloat), vb = zeros(100, at::kFloat);
  adam(a, grad, ma, va, s, {.scale = 0.5, .limit = 0.3});
  adam(b, halved, mb, vb, s, {.limit = 0.3});
  EXPECT_TRUE(at::equal(a, b));
  EXPECT_TRUE(at::equal(ma, mb));
  const SgdScalars plain{0.1, 0.0, 0.0, false};
  sgd(a, grad, {}, plain, {.scale = 0.5, .limit = 0.3});
  sgd(b, halved, {}, plain, {.limit = 0.3});
  EXPECT_TRUE(at::equal(a, b));
}

// Each step computes with what bf16 holds and stores the fp32 results rounded to nearest even.
TEST_P(Optimizers, Bf16MomentsAreRoundedWhenStored) {
  for (const int64_t numel : {1, 17, 1003}) {
    const auto half = [&](const at::Tensor& x) { return guarded_copy(x.to(at::kBFloat16)); };
    const auto m16 = half(randn({numel}, at::kFloat, 0.1));
    const auto v16 = half(randn({numel}, at::kFloat, 0.1).square());
    const auto m32 = guarded_copy(m16.to(at::kFloat)), v32 = guarded_copy(v16.to(at::kFloat));
    const auto grad = randn({numel}, at::kFloat, 0.1);
    const auto p16 = randn({numel}, at::kFloat);
    const auto p32 = guarded_copy(p16);
    const AdamScalars s{1e-2, 0.9, 0.95, 1e-8, 0.1, true, 3};
    adam(p16, grad, m16, v16, s);
    adam(p32, grad, m32, v32, s);
    EXPECT_TRUE(at::equal(p16, p32));
    EXPECT_TRUE(at::equal(m16, m32.to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(v16, v32.to(at::kBFloat16)));

    const auto b32 = guarded_copy(m16.to(at::kFloat));
    const SgdScalars momentum{0.1, 0.9, 0.01, true};
    sgd(p16, grad, m16, momentum);
    sgd(p32, grad, b32, momentum);
    EXPECT_TRUE(at::equal(p16, p32));
    EXPECT_TRUE(at::equal(m16, b32.to(at::kBFloat16)));
  }
}

TEST_P(Optimizers, DoNotDependOnThreads) {
  const int64_t numel = 200003;
  const auto start = randn({numel}, at::kFloat), grad = randn({numel}, at::kFloat);
  std::vector<at::Tensor> results;
  for (const int threads : {1, 3}) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const auto p = guarded_copy(start);
    const auto m = zeros(numel, at::kFloat), v = zeros(numel, at::kFloat);
    adam(p, grad, m, v, {1e-2, 0.9, 0.95, 1e-8, 0.1, false, 1});
    sgd(p, grad, m, {0.1, 0.9, 0.01, false});
    results.push_back(p);
    at::set_num_threads(before);
  }
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

TEST_P(Optimizers, RefuseBadArguments) {
  const auto x = randn({4}, at::kFloat);
  const auto five = randn({5}, at::kFloat);
  const auto half = randn({4}, at::kBFloat16);
  const auto wide = randn({4}, at::kDouble);
  const AdamScalars s{1e-3, 0.9, 0.95, 1e-8, 0.1, true, 1};
  EXPECT_MESSAGE(adam(x, five, x, x, s), "adam: grad has 5 elements; it must have 4");
  EXPECT_MESSAGE(adam(x, x, wide, wide, s),
                 "adam: exp_avg is Double; it must be Float or BFloat16");
  EXPECT_MESSAGE(adam(wide, wide, half, half, s), "adam: exp_avg is BFloat16; it must be Double");
  EXPECT_MESSAGE(adam(x, x, half, x, s), "adam: exp_avg_sq is Float; it must be BFloat16");
  EXPECT_MESSAGE(adam(half, half, half, half, s), "master is BFloat16");
  AdamScalars zero = s;
  zero.step = 0;
  EXPECT_MESSAGE(adam(x, x, x, x, zero), "step is 0");
  EXPECT_MESSAGE(sgd(x, x, {}, {0.1, 0.9, 0, false}), "momentum_buffer is undefined");
  EXPECT_MESSAGE(sgd(x, x, x, {0.1, 0.0, 0, false}), "momentum is 0 and momentum_buffer is there");
  EXPECT_MESSAGE(sgd(x, five, {}, {0.1, 0.0, 0, false}), "sgd: grad has 5 elements");
}

INSTANTIATE_FOR_TARGETS(Optimizers);

}  // namespace
}  // namespace tessera::kernels
