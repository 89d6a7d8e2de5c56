#include "parallel/executor/step_executor.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace tessera {
namespace {

std::vector<at::Tensor> allocate(const std::vector<int64_t>& bytes) {
  std::vector<at::Tensor> slots;
  for (int64_t n : bytes) slots.push_back(at::zeros({n}, at::kByte));
  return slots;
}

int64_t total_bytes(const std::vector<at::Tensor>& tensors) {
  int64_t sum = 0;
  for (const auto& tensor : tensors) sum += static_cast<int64_t>(tensor.nbytes());
  return sum;
}

// A slot plan for evaluation uses the training ring, whose slots may lie in another order.
bool fits(const SlotPlan& plan, const std::vector<int64_t>& slot_bytes) {
  if (plan.gather_slot_bytes.size() > slot_bytes.size()) return false;
  for (size_t i = 0; i < plan.gather_slot_bytes.size(); ++i)
    if (plan.gather_slot_bytes[i] > slot_bytes[i]) return false;
  return true;
}

}  // namespace

StepExecutor::StepExecutor(std::vector<Stage*> stages, std::vector<FlatBucket*> buckets,
                           const std::vector<std::vector<int>>& stage_buckets,
                           ExecutorOptions options)
    : stages_(std::move(stages)), buckets_(std::move(buckets)), options_(options) {
  std::vector<int64_t> bytes;
  int64_t staging = 0;
  for (const FlatBucket* bucket : buckets_) {
    bytes.push_back(bucket->slot_bytes());
    if (bytes.back() > 0) staging = std::max(staging, bucket->shard_numel());
  }
  size_t at_once = 0;
  for (size_t i = 0; i < stages_.size(); ++i) {
    needs_.push_back({stage_buckets[i], stages_[i]->backward_reads_parameters()});
    at_once = std::max(at_once, stage_buckets[i].size());
  }
  train_plan_ =
      plan_slots(bytes, needs_, {.prefetch = options.prefetch, .recompute = options.recompute});
  eval_plan_ = plan_slots(bytes, needs_, {.prefetch = options.prefetch, .training = false});
  if (!fits(eval_plan_, train_plan_.gather_slot_bytes))
    fail("executor",
         "the forward-only schedule needs more gather slots than the training schedule");
  gather_slots_ = allocate(train_plan_.gather_slot_bytes);
  grad_slots_ = allocate(train_plan_.grad_slot_bytes);
  for (size_t i = 0; i < at_once; ++i) staging_.push_back(at::zeros({staging}, at::kFloat));
  if (options.poison_released)  // all bits set is NaN in fp32 and in bf16
    poison_ = at::full({*std::max_element(bytes.begin(), bytes.end())},
                       std::numeric_limits<uint8_t>::max(), at::kByte);
  states_.resize(stages_.size());
  gathering_.assign(buckets_.size(), false);
}

StepExecutor::~StepExecutor() {
  for (FlatBucket* bucket : buckets_) bucket->abandon();
}

double StepExecutor::forward_backward(const MicroBatch& batch, bool first) {
  at::AutoGradMode grad_mode(true);
  const auto& plan = train_plan_;
  size_t next_gather = 0;
  double loss = 0.0;
  TensorList grads;  // of the outputs of the stage whose backward comes next
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    const auto [stage, forward, backward] = plan.turns[t];
    start_gathers(plan, t, next_gather);
    finish_gathers(plan, t);
    // The last stage's own functions may add weight gradients during its forward already.
    if (backward) begin_grads(t, first);
    if (forward) forward_turn(stage, batch);
    if (forward && backward) {
      loss = states_[stage].outputs[0].item<double>();
      grads = {at::ones_like(states_[stage].outputs[0])};
    }
    if (backward) {
      backward_turn(stage, batch, grads);
      // The reductions before these ran beside this turn's computation.
      finish_reduces();
      start_reduces(t, first);
    }
    release_after(plan, t);
  }
  finish_reduces();
  return loss;
}

double StepExecutor::evaluate(const MicroBatch& batch) {
  at::AutoGradMode grad_mode(false);
  const auto& plan = eval_plan_;
  size_t next_gather = 0;
  TensorList values;
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    start_gathers(plan, t, next_gather);
    finish_gathers(plan, t);
    values = stages_[plan.turns[t].stage]->forward(values, batch);
    release_after(plan, t);
  }
  return values.at(0).item<double>();
}

int64_t StepExecutor::buffer_bytes() const {
  return total_bytes(gather_slots_) + total_bytes(grad_slots_) + total_bytes(staging_);
}

void StepExecutor::start_gathers(const SlotPlan& plan, int turn, size_t& next) {
  for (; next < plan.gathers.size() && plan.gathers[next].first_turn <= turn; ++next) {
    const auto& hold = plan.gathers[next];
    buckets_[hold.bucket]->start_gather(gather_slots_[hold.slot].data_ptr());
    gathering_[hold.bucket] = true;
  }
}

void StepExecutor::finish_gathers(const SlotPlan& plan, int turn) {
  for (int bucket : needs_[plan.turns[turn].stage].buckets) {
    if (!gathering_[bucket]) continue;
    buckets_[bucket]->wait_gather();
    gathering_[bucket] = false;
  }
}

void StepExecutor::release_after(const SlotPlan& plan, int turn) {
  for (const auto& hold : plan.gathers)
    if (hold.last_turn == turn)
      buckets_[hold.bucket]->release(poison_.defined() ? poison_.data_ptr() : nullptr);
}

void StepExecutor::forward_turn(int stage, const MicroBatch& batch) {
  auto& state = states_[stage];
  if (stage > 0 && state.inputs.empty())
    fail("executor", "stage {} has no input", stages_[stage]->name());
  const bool last = stage + 1 == static_cast<int>(stages_.size());
  const bool keep_graph = last || !options_.recompute;
  TensorList outputs;
  {
    at::AutoGradMode grad_mode(keep_graph);
    outputs = stages_[stage]->forward(state.inputs, batch);
  }
  if (keep_graph) state.outputs = outputs;
  if (last) return;
  auto& next = states_[stage + 1].inputs;
  next.clear();
  for (const auto& output : outputs)
    next.push_back(output.detach().set_requires_grad(output.is_floating_point()));
}

void StepExecutor::backward_turn(int stage, const MicroBatch& batch, TensorList& grads) {
  auto& state = states_[stage];
  if (state.outputs.empty()) state.outputs = stages_[stage]->forward(state.inputs, batch);
  TensorList roots, root_grads;
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    if (!state.outputs[i].requires_grad() || !grads[i].defined()) continue;
    roots.push_back(std::move(state.outputs[i]));
    root_grads.push_back(std::move(grads[i]));
  }
  state.outputs.clear();
  if (!roots.empty()) torch::autograd::backward(roots, root_grads);
  grads.clear();
  for (auto& input : state.inputs) grads.push_back(input.grad());
  state.inputs.clear();
}

void StepExecutor::begin_grads(int turn, bool first) {
  for (int bucket : needs_[train_plan_.turns[turn].stage].buckets) {
    void* slot = nullptr;  // resident buckets have none
    for (const auto& hold : train_plan_.grads)
      if (hold.bucket == bucket && hold.first_turn == turn)
        slot = grad_slots_[hold.slot].data_ptr();
    buckets_[bucket]->begin_grad(slot, first && is_first_backward(bucket, turn));
  }
}

void StepExecutor::start_reduces(int turn, bool first) {
  size_t staging = 0;
  for (int bucket : needs_[train_plan_.turns[turn].stage].buckets) {
    buckets_[bucket]->start_reduce(first && is_first_backward(bucket, turn), staging_[staging++]);
    reducing_.push_back(buckets_[bucket]);
  }
}

void StepExecutor::finish_reduces() {
  for (FlatBucket* bucket : std::exchange(reducing_, {})) bucket->wait_reduce();
}

// A bucket that several stages list is reduced once for each; the later ones add.
bool StepExecutor::is_first_backward(int bucket, int turn) const {
  for (int t = 0; t < turn; ++t) {
    if (!train_plan_.turns[t].backward) continue;
    const auto& listed = needs_[train_plan_.turns[t].stage].buckets;
    if (std::find(listed.begin(), listed.end(), bucket) != listed.end()) return false;
  }
  return true;
}

}  // namespace tessera
