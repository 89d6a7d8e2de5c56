#include "parallel/executor/step_executor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace tessera {
namespace {

TensorList cast(const TensorList& values, std::optional<at::ScalarType> dtype) {
  if (!dtype) return values;
  TensorList result;
  for (const auto& value : values)
    result.push_back(value.is_floating_point() ? value.to(*dtype) : value);
  return result;
}

std::vector<BucketNeeds> needs_of(const std::vector<FlatBucket*>& buckets) {
  std::vector<BucketNeeds> needs;
  for (const FlatBucket* bucket : buckets) {
    const BucketPlacement& placement = bucket->placement();
    BucketNeeds& of_bucket = needs.emplace_back();
    of_bucket.gather_bytes = bucket->gather_slot_bytes();
    of_bucket.refreshes = placement.full_copy() == FullCopy::kKept;
    if (!bucket->trainable()) continue;
    of_bucket.grad_bytes = bucket->gradient().slot_bytes();
    if (bucket->gradient().offloaded()) of_bucket.shard_operations = placement.reduce_operations();
  }
  return needs;
}

}  // namespace

StepExecutor::StepExecutor(const std::vector<Stage*>& stages,
                           const std::vector<FlatBucket*>& buckets,
                           const std::vector<std::vector<int>>& stage_buckets,
                           ExecutorOptions options)
    : options_(std::move(options)),
      device_(buckets.empty() ? Device() : buckets[0]->device()),
      compute_(device_.current_stream()),
      gather_(device_.new_stream(StreamPriority::kHigh)),
      reduce_(device_.new_stream(StreamPriority::kHigh)),
      started_(device_.new_event()),
      filled_(device_.new_event()),
      reduces_done_(device_.new_event()),
      stages_(make_stages(stages, stage_buckets)),
      buckets_(make_buckets(buckets)),
      plans_(
          plan_executor(needs_of(buckets), stage_needs(stages, stage_buckets, options_), options_)),
      gather_slots_(make_slots(plans_.eval.gather_slot_bytes)),
      grad_slots_(make_slots(plans_.train.grad_slot_bytes)),
      reduce_memory_(make_reduce_memory()),
      poison_(make_poison()) {}

std::vector<StepExecutor::StageState> StepExecutor::make_stages(
    const std::vector<Stage*>& stages, const std::vector<std::vector<int>>& stage_buckets) const {
  std::vector<StageState> states;
  const int count = static_cast<int>(stages.size());
  for (int i = 0; i < count; ++i)
    states.push_back({stages[i], stage_buckets[i], recomputes(options_, i, count), {}, {}});
  return states;
}

std::vector<StepExecutor::BucketState> StepExecutor::make_buckets(
    const std::vector<FlatBucket*>& buckets) const {
  std::vector<BucketState> states;
  for (FlatBucket* bucket : buckets) states.push_back({bucket, device_.new_event()});
  return states;
}

std::vector<StepExecutor::Slot> StepExecutor::make_slots(const std::vector<int64_t>& bytes) const {
  std::vector<Slot> slots;
  for (const int64_t n : bytes)
    slots.push_back({device_.zeros({n}, at::kByte), device_.new_event()});
  return slots;
}

ReduceMemory StepExecutor::make_reduce_memory() const {
  std::vector<std::vector<const BucketGradient*>> gradients;
  for (const StageState& stage : stages_) {
    auto& of_stage = gradients.emplace_back();
    for (const int index : stage.buckets) {
      const FlatBucket* bucket = buckets_[index].bucket;
      of_stage.push_back(bucket->trainable() ? &bucket->gradient() : nullptr);
    }
  }
  return {device_, gradients};
}

at::Tensor StepExecutor::make_poison() const {
  if (!options_.poison_released) return {};
  int64_t largest = 0;
  for (const BucketState& state : buckets_)
    largest = std::max(largest, state.bucket->gather_slot_bytes());
  // All bits set is NaN in every floating-point type.
  return device_.empty({largest}, at::kByte).fill_(std::numeric_limits<uint8_t>::max());
}

// LibTorch's allocator gives out freed memory again at once, as far as it knows: it knows only of
// the work on `compute`. So nothing may be left on the other two streams.
StepExecutor::~StepExecutor() {
  for (const BucketState& state : buckets_) state.bucket->abandon();
  try {
    gather_.synchronize();
    reduce_.synchronize();
  } catch (const std::exception&) {
    // The device itself has failed; nothing runs there any more.
  }
}

// Gathers wait for the update that changed the masters and for the last readers of their slots:
// both are on `compute`, so they wait for all that it holds now. Returns the batch on the device.
MicroBatch StepExecutor::begin_pass(const MicroBatch& host_batch) {
  started_.record(compute_);
  gather_.wait(started_);
  return host_batch.to(device_);
}

at::Tensor StepExecutor::forward_backward(const MicroBatch& host_batch, MicroStep step) {
  at::AutoGradMode grad_mode(true);
  const SlotPlan& plan = plans_.train;
  const MicroBatch batch = begin_pass(host_batch);
  size_t next_gather = 0;
  at::Tensor loss;
  TensorList grads;  // of the outputs of the stage whose backward comes next
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    const auto [stage, forward, backward] = plan.turns[t];
    enter(forward ? Phase::kForward : Phase::kBackward, stage);
    start_gathers(plan, t, next_gather);
    finish_gathers(stage);
    // Before the forward, since the loss of the last stage makes its gradients there already.
    if (backward) begin_grads(t, step);
    if (forward) forward_turn(stage, batch);
    if (forward && backward) {
      loss = stages_[stage].outputs[0].detach().to(at::kDouble);
      grads = {at::ones_like(stages_[stage].outputs[0])};
    }
    if (backward) {
      if (forward) enter(Phase::kBackward, stage);
      backward_turn(stage, batch, grads);
      // First the reductions that were started a turn ago: they ran beside this turn's computation.
      advance_reduces();
      start_reduces(t, step);
    }
    release_after(plan, t);
  }
  finish_reduces();
  // Offloaded gradients are in the host's memory, and the host itself sums their squares: it waits
  // here until the last of them have been copied there.
  if (step.last && reduce_memory_.has_offloaded()) reduce_.synchronize();
  return loss;
}

std::vector<double> StepExecutor::evaluate(const MicroBatch& host_batch) {
  at::AutoGradMode grad_mode(false);
  const SlotPlan& plan = plans_.eval;
  const MicroBatch batch = begin_pass(host_batch);
  size_t next_gather = 0;
  TensorList values;
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    const int stage = plan.turns[t].stage;
    if (options_.place) options_.place->stage(stage);
    start_gathers(plan, t, next_gather);
    finish_gathers(stage);
    values = run_stage(stage, values, batch);
    release_after(plan, t);
  }
  std::vector<double> sums;
  for (const auto& value : values) sums.push_back(value.item<double>());
  return sums;
}

void StepExecutor::parameters_changed() {
  for (const BucketState& state : buckets_)
    if (state.bucket->trainable()) state.bucket->mark_changed();
}

MemoryLedger StepExecutor::ledger() const {
  MemoryLedger ledger;
  for (const BucketState& state : buckets_) state.bucket->add_to(ledger);
  const auto bytes = [](const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); };
  for (const Slot& slot : gather_slots_) ledger.add(MemoryClass::kGatherRing, bytes(slot.memory));
  for (const Slot& slot : grad_slots_) ledger.add(MemoryClass::kReduceRing, bytes(slot.memory));
  ledger.add(MemoryClass::kStaging, reduce_memory_.bytes());
  if (poison_.defined()) ledger.add(MemoryClass::kPoison, bytes(poison_));
  return ledger;
}

// Starts the gathers that the plan has in this turn, from number `next` on.
void StepExecutor::start_gathers(const SlotPlan& plan, int turn, size_t& next) {
  for (; next < plan.gathers.size() && plan.gathers[next].first_turn <= turn; ++next) {
    const Hold& hold = plan.gathers[next];
    BucketState& state = buckets_[hold.bucket];
    void* memory = nullptr;
    if (hold.slot >= 0) {
      memory = gather_slots_[hold.slot].memory.data_ptr();
      gather_.wait(gather_slots_[hold.slot].free);
    }
    const StreamScope scope(gather_);
    if (!state.bucket->start_gather(memory)) continue;
    state.gathered.record(gather_);
    trace("gather", state.bucket->name());
    state.gathering = true;
  }
}

// `compute` waits for the parameters that a stage is about to read.
void StepExecutor::finish_gathers(int stage) {
  for (const int index : stages_[stage].buckets) {
    BucketState& state = buckets_[index];
    if (!state.gathering) continue;
    trace("wait", state.bucket->name());
    compute_.wait(state.gathered);
    state.bucket->wait_gather();
    state.gathering = false;
  }
}

void StepExecutor::release_after(const SlotPlan& plan, int turn) {
  for (const Hold& hold : plan.gathers) {
    if (hold.last_turn != turn || hold.slot < 0) continue;
    FlatBucket* bucket = buckets_[hold.bucket].bucket;
    trace("release", bucket->name());
    bucket->release(poison_.defined() ? poison_.data_ptr() : nullptr);
    gather_slots_[hold.slot].free.record(compute_);
  }
}

TensorList StepExecutor::run_stage(int stage, const TensorList& inputs, const MicroBatch& batch) {
  Stage& link = *stages_[stage].stage;
  trace("forward", link.name());
  const bool last = stage + 1 == static_cast<int>(stages_.size());
  const TensorList outputs = link.forward(cast(inputs, options_.inputs), batch);
  return last ? outputs : cast(outputs, options_.outputs);
}

void StepExecutor::forward_turn(int stage, const MicroBatch& batch) {
  StageState& state = stages_[stage];
  if (stage > 0 && state.inputs.empty())
    fail("executor", "stage {} has no input", state.stage->name());
  TensorList outputs;
  {
    at::AutoGradMode grad_mode(!state.recomputes);
    outputs = run_stage(stage, state.inputs, batch);
  }
  if (!state.recomputes) state.outputs = outputs;
  if (stage + 1 == static_cast<int>(stages_.size())) return;
  TensorList& next = stages_[stage + 1].inputs;
  next.clear();
  for (const auto& output : outputs)
    next.push_back(output.detach().set_requires_grad(output.is_floating_point()));
}

// grads: in, of the stage's outputs; out, of its inputs, which are the outputs of the stage before.
void StepExecutor::backward_turn(int stage, const MicroBatch& batch, TensorList& grads) {
  StageState& state = stages_[stage];
  if (state.outputs.empty()) state.outputs = run_stage(stage, state.inputs, batch);
  trace("backward", state.stage->name());
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

// What the backward of this turn brings to a bucket's gradient: a tied weight has several turns in
// a micro-batch.
ReduceStep StepExecutor::reduce_step(int turn, int bucket, MicroStep step) const {
  const BackwardTurns& turns = plans_.train.backward[bucket];
  return {.first = step.first && turn == turns.first,
          .last = step.last && turn == turns.last,
          .single = step.first && step.last};
}

// The slot that the bucket's gradient has in this turn; -1: it needs none.
int StepExecutor::grad_slot(int turn, int bucket) const {
  for (const Hold& hold : plans_.train.grads)
    if (hold.bucket == bucket && hold.first_turn == turn) return hold.slot;
  return -1;
}

void StepExecutor::begin_grads(int turn, MicroStep step) {
  for (const int index : stages_[plans_.train.turns[turn].stage].buckets) {
    FlatBucket* bucket = buckets_[index].bucket;
    if (!bucket->trainable()) continue;
    void* memory = nullptr;
    if (const int slot = grad_slot(turn, index); slot >= 0) {
      memory = grad_slots_[slot].memory.data_ptr();
      compute_.wait(grad_slots_[slot].free);
    }
    bucket->gradient().begin(memory, reduce_step(turn, index, step).first);
  }
}

void StepExecutor::start_reduces(int turn, MicroStep step) {
  filled_.record(compute_);
  reduce_.wait(filled_);
  const StreamScope scope(reduce_);
  const std::vector<int>& listed = stages_[plans_.train.turns[turn].stage].buckets;
  for (size_t i = 0; i < listed.size(); ++i) {
    FlatBucket* bucket = buckets_[listed[i]].bucket;
    if (!bucket->trainable()) continue;
    const bool started = bucket->gradient().start_reduce(reduce_step(turn, listed[i], step),
                                                         reduce_memory_.buffers(i, turn));
    trace(started ? "reduce" : "keep", bucket->name());
    reducing_.push_back({bucket, grad_slot(turn, listed[i])});
  }
  if (!options_.overlap) finish_reduces();
}

void StepExecutor::advance_reduces() {
  const StreamScope scope(reduce_);
  std::erase_if(reducing_, [&](Reduce& reduce) {
    const bool more = reduce.bucket->gradient().advance();
    if (const int slot = std::exchange(reduce.slot, -1); slot >= 0)
      grad_slots_[slot].free.record(reduce_);
    trace(more ? "reduce on" : "reduced", reduce.bucket->name());
    return !more;
  });
}

// Afterwards all reductions are over, for whatever comes next on `compute`.
void StepExecutor::finish_reduces() {
  while (!reducing_.empty()) advance_reduces();
  reduces_done_.record(reduce_);
  compute_.wait(reduces_done_);
}

void StepExecutor::trace(const char* what, const std::string& name) {
  if (options_.trace) options_.trace(std::string(what) + " " + name);
}

void StepExecutor::enter(Phase phase, int stage) {
  if (!options_.place) return;
  options_.place->enter(phase);
  options_.place->stage(stage);
}

}  // namespace tessera
