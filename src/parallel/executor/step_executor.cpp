#include "parallel/executor/step_executor.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace tessera {
namespace {

int64_t total_bytes(const std::vector<at::Tensor>& tensors) {
  int64_t sum = 0;
  for (const auto& tensor : tensors) sum += static_cast<int64_t>(tensor.nbytes());
  return sum;
}

TensorList cast(const TensorList& values, std::optional<at::ScalarType> dtype) {
  if (!dtype) return values;
  TensorList result;
  for (const auto& value : values)
    result.push_back(value.is_floating_point() ? value.to(*dtype) : value);
  return result;
}

// The last stage's backward follows its forward at once, so nothing is gained there.
bool recomputes(const ExecutorOptions& options, int stage, int stages) {
  return options.recompute_every > 0 && stage % options.recompute_every == 0 && stage + 1 < stages;
}

}  // namespace

std::vector<StageNeeds> stage_needs(const std::vector<Stage*>& stages,
                                    const std::vector<std::vector<int>>& of_stage,
                                    const ExecutorOptions& options) {
  std::vector<StageNeeds> needs;
  const int count = static_cast<int>(stages.size());
  for (int i = 0; i < count; ++i)
    needs.push_back(
        {of_stage[i], recomputes(options, i, count) || stages[i]->backward_reads_parameters()});
  return needs;
}

SlotPlans plan_executor(const std::vector<BucketNeeds>& buckets,
                        const std::vector<StageNeeds>& stages, const ExecutorOptions& options) {
  const int prefetch = options.overlap ? options.prefetch : 0;
  SlotPlans plans;
  plans.train =
      plan_slots(buckets, stages, {.prefetch = prefetch, .keep_gathered = options.keep_gathered});
  plans.eval = plan_slots(buckets, stages,
                          {.prefetch = prefetch,
                           .training = false,
                           .gather_slot_bytes = plans.train.gather_slot_bytes});
  return plans;
}

StepExecutor::StepExecutor(std::vector<Stage*> stages, std::vector<FlatBucket*> buckets,
                           const std::vector<std::vector<int>>& stage_buckets,
                           ExecutorOptions options)
    : stages_(std::move(stages)),
      buckets_(std::move(buckets)),
      options_(std::move(options)),
      device_(buckets_.empty() ? Device() : buckets_[0]->device()),
      compute_(device_.current_stream()),
      gather_(device_.new_stream(StreamPriority::kHigh)),
      reduce_(device_.new_stream(StreamPriority::kHigh)),
      started_(device_.new_event()),
      filled_(device_.new_event()),
      reduces_done_(device_.new_event()) {
  needs_ = stage_needs(stages_, stage_buckets, options_);
  std::vector<BucketNeeds> bucket_needs;
  for (const FlatBucket* bucket : buckets_)
    bucket_needs.push_back({bucket->gather_slot_bytes(),
                            bucket->placement().full_copy() == FullCopy::kKept,
                            bucket->trainable() ? bucket->gradient().slot_bytes() : 0});
  SlotPlans plans = plan_executor(bucket_needs, needs_, options_);
  train_plan_ = std::move(plans.train);
  eval_plan_ = std::move(plans.eval);
  allocate_buffers();
  states_.resize(stages_.size());
  gathering_.assign(buckets_.size(), false);
  first_backward_.assign(buckets_.size(), -1);
  last_backward_.assign(buckets_.size(), -1);
  for (int t = 0; t < static_cast<int>(train_plan_.turns.size()); ++t) {
    if (!train_plan_.turns[t].backward) continue;
    for (int bucket : needs_[train_plan_.turns[t].stage].buckets) {
      if (first_backward_[bucket] < 0) first_backward_[bucket] = t;
      last_backward_[bucket] = t;
    }
  }
}

std::vector<at::Tensor> StepExecutor::allocate(const std::vector<int64_t>& bytes) const {
  std::vector<at::Tensor> slots;
  for (int64_t n : bytes) slots.push_back(device_.zeros({n}, at::kByte));
  return slots;
}

void StepExecutor::allocate_buffers() {
  gather_slots_ = allocate(eval_plan_.gather_slot_bytes);
  grad_slots_ = allocate(train_plan_.grad_slot_bytes);
  const auto events = [&](size_t count) {
    std::vector<Event> made;
    for (size_t i = 0; i < count; ++i) made.push_back(device_.new_event());
    return made;
  };
  gathered_ = events(buckets_.size());
  gather_slot_free_ = events(gather_slots_.size());
  grad_slot_free_ = events(grad_slots_.size());
  // Buffers number i serve the i-th bucket of whichever stage is being reduced.
  std::vector<int64_t> staging, wire, shard_slots;
  at::ScalarType staging_dtype = at::kFloat;
  for (const StageNeeds& stage : needs_) {
    for (size_t i = 0; i < stage.buckets.size(); ++i) {
      if (staging.size() <= i) {
        staging.push_back(0);
        wire.push_back(0);
        shard_slots.push_back(0);
      }
      const FlatBucket* bucket = buckets_[stage.buckets[i]];
      if (!bucket->trainable()) continue;
      staging_dtype = bucket->master().scalar_type();
      staging[i] = std::max(staging[i], bucket->gradient().staging_numel());
      wire[i] = std::max(wire[i], bucket->gradient().wire_bytes());
      shard_slots[i] = std::max(shard_slots[i], bucket->gradient().shard_slot_numel());
      offloads_gradients_ |= bucket->gradient().offloaded();
    }
  }
  for (int64_t numel : staging) staging_.push_back(device_.zeros({numel}, staging_dtype));
  for (auto& slots : shard_slots_)
    for (int64_t numel : shard_slots) slots.push_back(device_.zeros({numel}, staging_dtype));
  wire_ = allocate(wire);
  if (!options_.poison_released) return;
  int64_t largest = 0;
  for (const FlatBucket* bucket : buckets_)
    largest = std::max(largest, bucket->gather_slot_bytes());
  // All bits set is NaN in every floating-point type.
  poison_ = device_.empty({largest}, at::kByte).fill_(std::numeric_limits<uint8_t>::max());
}

// What is freed now may be given out again by LibTorch's allocator, which knows `compute` alone.
StepExecutor::~StepExecutor() {
  for (FlatBucket* bucket : buckets_) bucket->abandon();
  try {
    gather_.synchronize();
    reduce_.synchronize();
  } catch (const std::exception&) {
    // The device itself has failed; nothing runs there any more.
  }
}

// What is gathered must have been updated, and its slots must have been left: of the last pass and
// the update after it all is done that `compute` holds. Returns the batch on the device.
MicroBatch StepExecutor::begin_pass(const MicroBatch& batch) {
  started_.record(compute_);
  gather_.wait(started_);
  return {device_.upload(batch.tokens),        device_.upload(batch.targets),
          device_.upload(batch.weights),       device_.upload(batch.rows),
          device_.upload(batch.images),        device_.upload(batch.source),
          device_.upload(batch.source_lengths)};
}

// What comes next on `compute` finds the gradients as the reductions leave them.
void StepExecutor::join_reduces() {
  reduces_done_.record(reduce_);
  compute_.wait(reduces_done_);
}

at::Tensor StepExecutor::forward_backward(const MicroBatch& host_batch, MicroStep step) {
  at::AutoGradMode grad_mode(true);
  const auto& plan = train_plan_;
  const MicroBatch batch = begin_pass(host_batch);
  size_t next_gather = 0;
  at::Tensor loss;
  TensorList grads;  // of the outputs of the stage whose backward comes next
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    const auto [stage, forward, backward] = plan.turns[t];
    start_gathers(plan, t, next_gather);
    finish_gathers(plan, t);
    // The last stage's own functions may add weight gradients during its forward already.
    if (backward) begin_grads(t, step);
    if (forward) forward_turn(stage, batch);
    if (forward && backward) {
      loss = states_[stage].outputs[0].detach().to(at::kDouble);
      grads = {at::ones_like(states_[stage].outputs[0])};
    }
    if (backward) {
      backward_turn(stage, batch, grads);
      // The reductions before these ran beside this turn's computation.
      advance_reduces();
      start_reduces(t, step);
    }
    release_after(plan, t);
  }
  while (!reducing_.empty()) advance_reduces();
  join_reduces();
  // The host reads what lies in its memory.
  if (offloads_gradients_ && step.last) reduce_.synchronize();
  return loss;
}

std::vector<double> StepExecutor::evaluate(const MicroBatch& host_batch) {
  at::AutoGradMode grad_mode(false);
  const auto& plan = eval_plan_;
  const MicroBatch batch = begin_pass(host_batch);
  size_t next_gather = 0;
  TensorList values;
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    start_gathers(plan, t, next_gather);
    finish_gathers(plan, t);
    values = run_stage(plan.turns[t].stage, values, batch);
    release_after(plan, t);
  }
  std::vector<double> sums;
  for (const auto& value : values) sums.push_back(value.item<double>());
  return sums;
}

void StepExecutor::parameters_changed() {
  for (FlatBucket* bucket : buckets_)
    if (bucket->trainable()) bucket->mark_changed();
}

MemoryLedger StepExecutor::ledger() const {
  MemoryLedger ledger;
  for (const FlatBucket* bucket : buckets_) bucket->add_to(ledger);
  ledger.add(MemoryClass::kGatherRing, total_bytes(gather_slots_));
  ledger.add(MemoryClass::kReduceRing, total_bytes(grad_slots_));
  ledger.add(MemoryClass::kStaging, total_bytes(staging_) + total_bytes(wire_));
  for (const auto& slots : shard_slots_) ledger.add(MemoryClass::kStaging, total_bytes(slots));
  if (poison_.defined()) ledger.add(MemoryClass::kPoison, static_cast<int64_t>(poison_.nbytes()));
  return ledger;
}

bool StepExecutor::recomputes(int stage) const {
  return tessera::recomputes(options_, stage, static_cast<int>(stages_.size()));
}

void StepExecutor::start_gathers(const SlotPlan& plan, int turn, size_t& next) {
  for (; next < plan.gathers.size() && plan.gathers[next].first_turn <= turn; ++next) {
    const auto& hold = plan.gathers[next];
    FlatBucket* bucket = buckets_[hold.bucket];
    void* slot = hold.slot < 0 ? nullptr : gather_slots_[hold.slot].data_ptr();
    if (hold.slot >= 0) gather_.wait(gather_slot_free_[hold.slot]);
    const StreamScope scope(gather_);
    if (!bucket->start_gather(slot)) continue;
    gathered_[hold.bucket].record(gather_);
    trace("gather", bucket->name());
    gathering_[hold.bucket] = true;
  }
}

void StepExecutor::finish_gathers(const SlotPlan& plan, int turn) {
  for (int bucket : needs_[plan.turns[turn].stage].buckets) {
    if (!gathering_[bucket]) continue;
    trace("wait", buckets_[bucket]->name());
    compute_.wait(gathered_[bucket]);
    buckets_[bucket]->wait_gather();
    gathering_[bucket] = false;
  }
}

void StepExecutor::release_after(const SlotPlan& plan, int turn) {
  for (const auto& hold : plan.gathers) {
    if (hold.last_turn != turn || hold.slot < 0) continue;
    trace("release", buckets_[hold.bucket]->name());
    buckets_[hold.bucket]->release(poison_.defined() ? poison_.data_ptr() : nullptr);
    gather_slot_free_[hold.slot].record(compute_);
  }
}

TensorList StepExecutor::run_stage(int stage, const TensorList& inputs, const MicroBatch& batch) {
  trace("forward", stages_[stage]->name());
  const bool last = stage + 1 == static_cast<int>(stages_.size());
  const TensorList outputs = stages_[stage]->forward(cast(inputs, options_.inputs), batch);
  return last ? outputs : cast(outputs, options_.outputs);
}

void StepExecutor::forward_turn(int stage, const MicroBatch& batch) {
  auto& state = states_[stage];
  if (stage > 0 && state.inputs.empty())
    fail("executor", "stage {} has no input", stages_[stage]->name());
  const bool keep_graph = !recomputes(stage);
  TensorList outputs;
  {
    at::AutoGradMode grad_mode(keep_graph);
    outputs = run_stage(stage, state.inputs, batch);
  }
  if (keep_graph) state.outputs = outputs;
  if (stage + 1 == static_cast<int>(stages_.size())) return;
  auto& next = states_[stage + 1].inputs;
  next.clear();
  for (const auto& output : outputs)
    next.push_back(output.detach().set_requires_grad(output.is_floating_point()));
}

void StepExecutor::backward_turn(int stage, const MicroBatch& batch, TensorList& grads) {
  auto& state = states_[stage];
  if (state.outputs.empty()) state.outputs = run_stage(stage, state.inputs, batch);
  trace("backward", stages_[stage]->name());
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

// Of the slot that the bucket's gradient has in this turn; -1: it needs none.
int StepExecutor::grad_slot(int turn, int bucket) const {
  for (const auto& hold : train_plan_.grads)
    if (hold.bucket == bucket && hold.first_turn == turn) return hold.slot;
  return -1;
}

void StepExecutor::begin_grads(int turn, MicroStep step) {
  for (int bucket : needs_[train_plan_.turns[turn].stage].buckets) {
    if (!buckets_[bucket]->trainable()) continue;
    const int slot = grad_slot(turn, bucket);
    if (slot >= 0) compute_.wait(grad_slot_free_[slot]);
    buckets_[bucket]->gradient().begin(slot < 0 ? nullptr : grad_slots_[slot].data_ptr(),
                                       step.first && turn == first_backward_[bucket]);
  }
}

void StepExecutor::start_reduces(int turn, MicroStep step) {
  filled_.record(compute_);
  reduce_.wait(filled_);
  const StreamScope scope(reduce_);
  const auto& listed = needs_[train_plan_.turns[turn].stage].buckets;
  for (size_t i = 0; i < listed.size(); ++i) {
    FlatBucket* bucket = buckets_[listed[i]];
    if (!bucket->trainable()) continue;
    const bool started = bucket->gradient().start_reduce(
        step.first && turn == first_backward_[listed[i]],
        step.last && turn == last_backward_[listed[i]], step.first && step.last, staging_[i],
        wire_[i], shard_slots_[static_cast<size_t>(turn % 2)][i]);
    trace(started ? "reduce" : "keep", bucket->name());
    reducing_.push_back({bucket, grad_slot(turn, listed[i])});
  }
  if (options_.overlap) return;
  while (!reducing_.empty()) advance_reduces();
  join_reduces();
}

void StepExecutor::advance_reduces() {
  const StreamScope scope(reduce_);
  std::erase_if(reducing_, [&](Reduce& reduce) {
    const bool more = reduce.bucket->gradient().advance();
    if (const int slot = std::exchange(reduce.slot, -1); slot >= 0)
      grad_slot_free_[slot].record(reduce_);
    trace(more ? "reduce on" : "reduced", reduce.bucket->name());
    return !more;
  });
}

void StepExecutor::trace(const char* what, const std::string& name) {
  if (options_.trace) options_.trace(std::string(what) + " " + name);
}

}  // namespace tessera
