// Llama's layers in fp64, fp32, bf16 and fp16, and with parameters that stay in fp32.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <map>

#include "models/layers/rotary.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/tensor_parallel/linear.h"
#include "parallel/tensor_parallel/vocab_cross_entropy.h"
#include "parallel/tensor_parallel/vocab_embedding.h"
#include "stage_chain.h"

namespace tessera {
namespace {

struct Result {
  double loss;
  std::map<std::string, at::Tensor> gradients;
};

Result run_chain(at::ScalarType dtype, double scale = 1.0,
                 const std::vector<std::string>& keep_fp32 = {}) {
  Result result;
  on_tp_ranks(1, [&](Mesh& mesh) {
    ModelOptions options;
    options.activations = dtype;
    StageChain chain(chain_config(), 12, mesh, options, keep_fp32);
    const auto weights = dtype == at::kDouble ? at::kDouble : at::kFloat;
    result = {chain.forward_backward(chain_batch(weights, scale)), chain.gradients()};
  });
  return result;
}

TEST(Precision, Fp64AgreesOnEveryNumberOfRanks) {
  const Result one = run_chain(at::kDouble);
  for (int tp : {2, 4}) {
    on_tp_ranks(tp, [&](Mesh& mesh) {
      ModelOptions options;
      options.activations = at::kDouble;
      StageChain chain(chain_config(), 12, mesh, options);
      EXPECT_NEAR(chain.forward_backward(chain_batch(at::kDouble)), one.loss, 1e-13 * one.loss);
      for (auto& stage : chain.stages()) {
        for (const auto& parameter : stage->table().parameters()) {
          EXPECT_EQ(parameter.grad.scalar_type(), at::kDouble);
          EXPECT_LE(distance(parameter.grad,
                             part_of(one.gradients.at(parameter.spec.name), parameter.box)),
                    1e-12)
              << parameter.spec.name << " on " << tp;
        }
      }
    });
  }
}

// The loss against central differences: nothing in an fp64 run is rounded to fp32.
TEST(Precision, Fp64GradientsAreTheLosss) {
  on_tp_ranks(1, [&](Mesh& mesh) {
    ModelOptions options;
    options.activations = at::kDouble;
    StageChain chain(chain_config(), 12, mesh, options);
    const MicroBatch batch = chain_batch(at::kDouble);
    chain.forward_backward(batch);
    at::AutoGradMode no_grad(false);
    constexpr double kStep = 1e-4;
    for (auto& stage : chain.stages()) {
      for (const auto& parameter : stage->table().parameters()) {
        const at::Tensor value = parameter.value.detach(), before = value.clone();
        const at::Tensor direction = parameter.grad / parameter.grad.norm();
        value.copy_(before + kStep * direction);
        const double above = chain.forward(batch).item<double>();
        value.copy_(before - kStep * direction);
        const double below = chain.forward(batch).item<double>();
        value.copy_(before);
        const double norm = parameter.grad.norm().item<double>();
        EXPECT_NEAR((above - below) / (2 * kStep), norm, 2e-6 * norm) << parameter.spec.name;
      }
    }
  });
}

struct HalfCase {
  at::ScalarType dtype;
  double loss;      // relative
  double gradient;  // norm-wise: some twenty roundings of half a last digit one after the other
};

TEST(Precision, LowerPrecisionFollowsFp64) {
  const Result exact = run_chain(at::kDouble);
  for (const auto& [dtype, loss, gradient] :
       {HalfCase{at::kFloat, 1e-6, 1e-5}, {at::kBFloat16, 3e-3, 4e-2}, {at::kHalf, 4e-4, 6e-3}}) {
    const Result result = run_chain(dtype);
    EXPECT_NEAR(result.loss, exact.loss, loss * exact.loss) << dtype;
    for (const auto& [name, grad] : result.gradients) {
      EXPECT_EQ(grad.scalar_type(), dtype) << name;
      EXPECT_LE(distance(grad, exact.gradients.at(name)), gradient) << name << " in " << dtype;
    }
  }
}

// The fp16 scaler's factor comes with the weights: a power of two changes the loss not in a bit,
// and the gradients only where fp16 without it has fewer digits.
TEST(Precision, LossScaleIsExact) {
  const Result exact = run_chain(at::kDouble);
  const Result one = run_chain(at::kHalf), scaled = run_chain(at::kHalf, 4096.0);
  EXPECT_EQ(scaled.loss, 4096.0 * one.loss);
  const Result twice = run_chain(at::kHalf, 8192.0);
  EXPECT_EQ(twice.loss, 2 * scaled.loss);
  for (const auto& [name, grad] : scaled.gradients) {
    const at::Tensor unscaled = grad.to(at::kDouble) / 4096.0;
    EXPECT_LE(distance(unscaled, exact.gradients.at(name)), 6e-3) << name;
    EXPECT_LE(distance(twice.gradients.at(name).to(at::kDouble) / 8192.0, unscaled), 1e-4) << name;
  }
}

TEST(Precision, Fp16OverflowIsVisible) {
  const Result result = run_chain(at::kHalf, 65536.0 * 65536.0);
  EXPECT_TRUE(std::isfinite(result.loss));  // the loss itself is fp32
  for (const auto& [name, grad] : result.gradients)
    EXPECT_FALSE(at::isfinite(grad).all().item<bool>()) << name;
}

TEST(Precision, ParametersThatStayInFp32Count) {
  const Result exact = run_chain(at::kDouble);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const double tolerance = dtype == at::kHalf ? 6e-3 : 4e-2;
    for (const char* kept : {"embed_tokens", "norm", "self_attn", "mlp", "lm_head", "model"}) {
      const Result result = run_chain(dtype, 1.0, {kept});
      EXPECT_NEAR(result.loss, exact.loss, 4e-3 * exact.loss) << kept;
      for (const auto& [name, grad] : result.gradients) {
        const bool fp32 = name.find(kept) != std::string::npos;
        EXPECT_EQ(grad.scalar_type(), fp32 ? at::kFloat : dtype) << name;
        EXPECT_LE(distance(grad, exact.gradients.at(name)), tolerance) << name << " with " << kept;
      }
    }
  }
}

// A weight between two bf16 values is used as it is.
TEST(Precision, LinearUsesTheFp32Value) {
  auto tp = make_self_communicator();
  const float value = 1.0F + 1.0F / 1024;  // bf16 would give 1
  const at::Tensor x = at::full({1, 1}, 1024.0, at::kHalf).set_requires_grad(true);
  const Weight weight{at::full({1, 1}, value), at::zeros({1, 1})};
  for (const bool column : {true, false}) {
    const at::Tensor y =
        column ? column_parallel_linear(x, weight, *tp) : row_parallel_linear(x, weight, *tp);
    EXPECT_EQ(y.scalar_type(), at::kHalf);
    EXPECT_EQ(y.item<float>(), 1025.0F);
    x.mutable_grad() = at::Tensor();
    y.backward(at::full({1, 1}, 2048.0, at::kHalf));
    EXPECT_EQ(x.grad().item<float>(), 2050.0F);
  }
  EXPECT_EQ(weight.grad.item<float>(), 2 * 1024.0F * 2048.0F);  // beyond fp16
}

TEST(Precision, EmbeddingAddsUpInFp32) {
  auto tp = make_self_communicator();
  Parameter table;
  table.box = {{0, 0}, {4, 3}};
  table.value = at::full({4, 3}, 1.0F + 1.0F / 4096).set_requires_grad(true);
  table.grad = at::zeros({4, 3});
  const at::Tensor tokens = at::ones({1, 1001}, at::kLong);
  const at::Tensor y = vocab_parallel_embedding(tokens, table, *tp, at::kHalf);
  EXPECT_TRUE(at::equal(y.detach(), at::ones({1001, 3}, at::kHalf)));  // rounded once
  y.backward(at::full({1001, 3}, 99.0, at::kHalf));
  EXPECT_EQ(table.grad[1][0].item<float>(), 99099.0F);  // beyond fp16
  EXPECT_EQ(table.grad[0][0].item<float>(), 0.0F);
}

// A head in fp32 makes fp32 logits of halves: the loss has fp32's digits.
TEST(Precision, LossUsesTheFp32Head) {
  auto tp = make_self_communicator();
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor h0 = at::randn({20, 32}, generator, at::TensorOptions(at::kDouble)).to(dtype);
    const at::Tensor w0 = at::randn({16, 32}, generator, at::TensorOptions(at::kFloat));
    const at::Tensor targets = at::arange(20, at::kLong).remainder(16);
    const at::Tensor h = h0.to(at::kDouble).set_requires_grad(true);
    const at::Tensor w = w0.to(at::kDouble).set_requires_grad(true);
    const at::Tensor expected = at::cross_entropy_loss(at::mm(h, w.t()), targets);
    expected.backward();

    const at::Tensor x = h0.clone().set_requires_grad(true);
    const Weight weight{w0, at::zeros_like(w0)};
    const at::Tensor loss =
        vocab_parallel_loss(x, weight, 0, weight.value.size(0), targets, at::full({20}, 0.05), *tp);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6 * expected.item<double>());
    EXPECT_LE(distance(weight.grad, w.grad()), 1e-6);
    EXPECT_EQ(x.grad().scalar_type(), dtype);
    EXPECT_LE(distance(x.grad(), h.grad()), dtype == at::kHalf ? 1e-3 : 4e-3);
  }
}

TEST(Precision, RotaryTablesOfBf16AreStoredAsSuch) {
  const RopeTable fp32(16, 8, 10000.0, at::kFloat), bf16(16, 8, 10000.0, at::kBFloat16);
  EXPECT_EQ(bf16.cos.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(bf16.cos, fp32.cos.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(bf16.sin, fp32.sin.to(at::kBFloat16)));
  on_tp_ranks(1, [&](Mesh& mesh) {
    const MicroBatch batch = chain_batch(at::kFloat);
    ModelOptions options;
    StageChain exact(chain_config(), 12, mesh, options);
    options.buffers = at::kBFloat16;
    StageChain rounded(chain_config(), 12, mesh, options);
    const double a = exact.forward(batch).item<double>(), b = rounded.forward(batch).item<double>();
    EXPECT_NE(a, b);
    EXPECT_NEAR(a, b, 1e-3 * a);
  });
}

TEST(Precision, FrozenParametersHaveNoGradientAndPassOneOn) {
  on_tp_ranks(1, [&](Mesh& mesh) {
    StageChain all(chain_config(), 12, mesh, {}), frozen(chain_config(), 12, mesh, {});
    for (auto& stage : frozen.stages()) {
      if (stage->name() == "block 0") continue;
      for (ParameterPack& pack : stage->table().packs()) {
        pack.grad = at::Tensor();
        for (Parameter* part : pack.parts) {
          part->grad = at::Tensor();
          part->value.set_requires_grad(false);
        }
      }
    }
    // The frozen embedding's output has no graph; the chain starts at block 0.
    const MicroBatch batch = chain_batch(at::kFloat);
    all.forward_backward(batch);
    TensorList values = frozen.stages()[0]->forward({}, batch);
    EXPECT_FALSE(values[0].requires_grad());
    values[0] = values[0].detach().set_requires_grad(true);
    for (size_t i = 1; i < frozen.stages().size(); ++i)
      values = frozen.stages()[i]->forward(values, batch);
    values[0].backward();
    for (const auto& [name, grad] : frozen.gradients()) {
      if (!grad.defined()) continue;
      EXPECT_TRUE(at::equal(grad, all.gradients().at(name))) << name;
    }
  });
}

}  // namespace
}  // namespace tessera
