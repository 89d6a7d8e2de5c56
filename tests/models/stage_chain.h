#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "models/llama/llama.h"
#include "parallel/comm/shm/thread_communicator.h"

namespace tessera {

// A whole Llama on the ranks of a tp group without buckets or executor: its parameters lie in plain
// tensors, the same on every number of ranks.
class StageChain {
 public:
  using Values = std::function<at::Tensor(const ParameterSpec&)>;

  // `keep_fp32`: parameters whose name contains one of these stay in fp32.
  StageChain(const LlamaConfig& config, int64_t seq_len, Mesh& mesh, const ModelOptions& options,
             const std::vector<std::string>& keep_fp32 = {})
      : stages_(make_llama(config, seq_len, mesh, options)) {
    for (auto& stage : stages_) {
      for (ParameterPack& pack : stage->table().packs()) {
        auto dtype = options.activations;
        for (const auto& part : keep_fp32)
          if (pack.parts[0]->spec.name.find(part) != std::string::npos) dtype = at::kFloat;
        place(pack, dtype, whole);
      }
    }
  }
  // Any model with the given values, a whole tensor each, in fp32.
  StageChain(std::vector<std::unique_ptr<Stage>> stages, const Values& values)
      : stages_(std::move(stages)) {
    for (auto& stage : stages_)
      for (ParameterPack& pack : stage->table().packs()) place(pack, at::kFloat, values);
  }

  // The loss; gradients are added into the parameters' grad. Stage by stage as the executor does
  // it; with `recompute` no graph is kept.
  double forward_backward(const MicroBatch& batch, bool recompute = false) {
    std::vector<TensorList> inputs(stages_.size()), outputs(stages_.size());
    for (size_t i = 0; i < stages_.size(); ++i) {
      const bool last = i + 1 == stages_.size();
      {
        at::AutoGradMode grad_mode(last || !recompute);
        outputs[i] = stages_[i]->forward(inputs[i], batch);
      }
      if (last) break;
      for (const at::Tensor& value : outputs[i])
        inputs[i + 1].push_back(value.detach().set_requires_grad(true));
    }
    TensorList grads = {at::ones_like(outputs.back()[0])};
    for (size_t i = stages_.size(); i-- > 0;) {
      if (recompute && i + 1 < stages_.size()) outputs[i] = stages_[i]->forward(inputs[i], batch);
      TensorList roots, root_grads;
      for (size_t k = 0; k < outputs[i].size(); ++k) {
        if (!grads[k].defined()) continue;
        roots.push_back(outputs[i][k]);
        root_grads.push_back(grads[k]);
      }
      torch::autograd::backward(roots, root_grads);
      grads.clear();
      for (const at::Tensor& input : inputs[i]) grads.push_back(input.grad());
    }
    return outputs.back()[0].item<double>();
  }

  // Completes what is partial over tp, as TpGradientSum does it. Collective.
  void sum_partial_gradients(Mesh& mesh) {
    if (mesh.tp() == 1) return;
    for (auto& stage : stages_)
      for (const auto& parameter : stage->table().parameters()) {
        if (!parameter.spec.sums_gradient_over_tp()) continue;
        const at::Tensor sum = parameter.grad.clone();
        mesh.tp_copies_group(parameter.spec.tp.copies(mesh.tp()))
            .all_reduce(sum, ReduceOp::kSum)
            .wait();
        at::Tensor(parameter.grad).copy_(sum);
      }
  }

  at::Tensor forward(const MicroBatch& batch) { return evaluate(batch)[0]; }

  // What the last stage returns without gradients.
  TensorList evaluate(const MicroBatch& batch) {
    at::AutoGradMode no_grad(false);
    return stages_.back()->forward(inputs_of_head(batch), batch);
  }

  // The logarithms of all probabilities, [targets, classes], from losses alone: that of one target
  // which is each class in turn. What a softmax knows of the logits.
  at::Tensor log_probabilities(MicroBatch batch, int64_t classes) {
    at::AutoGradMode no_grad(false);
    const TensorList inputs = inputs_of_head(batch);
    const at::Tensor result = at::empty({batch.targets.numel(), classes}, at::kFloat);
    for (int64_t place = 0; place < batch.targets.numel(); ++place) {
      batch.weights = at::zeros(batch.targets.sizes());
      batch.weights.view({-1})[place] = 1.0;
      for (int64_t target = 0; target < classes; ++target) {
        batch.targets = at::full_like(batch.targets, target);
        result[place][target] = -stages_.back()->forward(inputs, batch)[0].item<float>();
      }
    }
    return result;
  }

  // This rank's part of every gradient.
  std::map<std::string, at::Tensor> gradients() {
    std::map<std::string, at::Tensor> result;
    for (auto& stage : stages_)
      for (const auto& parameter : stage->table().parameters())
        result[parameter.spec.name] = parameter.grad;
    return result;
  }

  std::vector<std::unique_ptr<Stage>>& stages() { return stages_; }

 private:
  TensorList inputs_of_head(const MicroBatch& batch) {
    TensorList values;
    for (size_t i = 0; i + 1 < stages_.size(); ++i) values = stages_[i]->forward(values, batch);
    return values;
  }

  static at::Tensor whole(const ParameterSpec& spec) {
    const at::Tensor values = at::empty(spec.shape, at::kFloat);
    Philox(7).normals(stream_of(spec.name), 0, 0.1, values.data_ptr<float>(), values.numel());
    return spec.init.value == 0 ? values : values + spec.init.value;
  }

  static void place(ParameterPack& pack, at::ScalarType dtype, const Values& values_of) {
    std::vector<at::Tensor> parts;
    for (const Parameter* part : pack.parts) {
      at::Tensor values = values_of(part->spec);
      for (size_t dim = 0; dim < part->box.shape.size(); ++dim)
        values =
            values.narrow(static_cast<int64_t>(dim), part->box.offset[dim], part->box.shape[dim]);
      parts.push_back(values);
    }
    pack.value = at::cat(parts).to(dtype);
    pack.grad = at::zeros_like(pack.value);
    int64_t begin = 0;
    for (Parameter* part : pack.parts) {
      const int64_t rows = part->box.shape[0];
      part->value = pack.value.narrow(0, begin, rows).detach().set_requires_grad(true);
      part->grad = pack.grad.narrow(0, begin, rows);
      part->value.mutable_grad() = part->grad;  // for layers that leave their gradients to autograd
      begin += rows;
    }
  }

  std::vector<std::unique_ptr<Stage>> stages_;
};

inline LlamaConfig chain_config() {
  LlamaConfig config;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;
  config.vocab_size = 64;
  return config;
}

// Two rows of 12 tokens; the weights sum to `scale`.
inline MicroBatch chain_batch(at::ScalarType weights, double scale = 1.0) {
  const at::Tensor ids = at::arange(2 * 12, at::kLong).view({2, 12});
  return {(ids * 7 + 3).remainder(64), (ids * 11 + 5).remainder(64),
          at::full({2, 12}, scale / 24, weights), at::tensor({int64_t{40}, int64_t{41}})};
}

// body(mesh) on tp thread ranks.
template <typename Body>
void on_tp_ranks(int tp, Body body) {
  run_thread_ranks(tp, [&](Communicator& world) {
    Mesh mesh({1, 1, tp}, world.split(0, world.rank(), "world"));
    body(mesh);
  });
}

// This rank's part of the same parameter of a chain on one rank.
inline at::Tensor part_of(const at::Tensor& whole, const Box& box) {
  at::Tensor part = whole;
  for (size_t dim = 0; dim < box.shape.size(); ++dim)
    part = part.narrow(static_cast<int64_t>(dim), box.offset[dim], box.shape[dim]);
  return part;
}

// ||a - b|| / ||b||.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor b64 = b.to(at::kDouble);
  return ((a.to(at::kDouble) - b64).norm() / b64.norm()).item<double>();
}

}  // namespace tessera
