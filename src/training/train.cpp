#include "training/train.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files/files.h"
#include "base/process/omp_num_threads.h"
#include "base/process/stop_requested.h"
#include "base/version.h"
#include "config/keys/with_keys.h"
#include "config/rules/check.h"
#include "config/save.h"
#include "kernels/cpu_target.h"
#include "optim/optimizer.h"
#include "optim/parameter_groups.h"
#include "parallel/comm/core/agreement.h"
#include "parallel/comm/core/file_work.h"
#include "parallel/comm/core/file_work_limit.h"
#include "parallel/executor/bucket_set.h"
#include "parallel/executor/memory_model.h"
#include "parallel/fsdp/initialize.h"
#include "parallel/fsdp/moment_file.h"
#include "parallel/fsdp/tp_gradient_sum.h"
#include "parallel/keep_fp32.h"
#include "training/engine/out_of_memory.h"
#include "training/engine/run_memory.h"
#include "training/engine/run_options.h"
#include "training/engine/train_state.h"
#include "training/loop/owed_validation.h"
#include "training/loop/trainer.h"
#include "training/output/memory_report.h"
#include "training/start/data_warnings.h"
#include "training/start/model_record.h"
#include "training/start/open_data.h"
#include "training/start/prepare_run_folder.h"
#include "training/start/rank_agreement.h"
#include "training/start/resume_rules.h"
#include "training/start/run_hf_files.h"
#include "training/start/run_start.h"
#include "training/start/threads.h"

namespace tessera {
namespace {

// The number of threads is part of what a run records, so auto is replaced by what it stands for.
Config with_threads(Config config) {
  if (config.run.threads == 0) config.run.threads = omp_num_threads();
  return config;
}

// The data, which must be the same on every rank.
Data open_same_data(const Config& config, Communicator& world) {
  Data data;
  std::vector<Sight> sights;
  read_on_all_ranks(world, [&] {
    data = open_data(config, world.rank() == 0);
    sights = sights_of(config, data);
  });
  check_same_on_all_ranks(sights, world);
  return data;
}

// Throws StopRequested on all ranks if one was asked to stop. Collective.
void agree_on_stop(Communicator& world, const StopSignal& stop_signal) {
  agree(world, [&] {
    stop_signal.check();
    return std::string();
  });
}

Manifest manifest_of(const Config& config, const MeshShape& mesh, const std::vector<Stage*>& stages,
                     const std::vector<std::string>& data, const RunRecord& record) {
  Manifest manifest;
  manifest.seed = config.run.seed;
  manifest.states = checkpoint_states(config.optimizer);
  manifest.tensors = tensor_infos(stages);
  manifest.config = to_json(config);
  manifest.data = data;
  manifest.run = to_json(record);
  manifest.mesh = {
      {"dp_replicate", mesh.dp_replicate}, {"dp_shard", mesh.dp_shard}, {"tp", mesh.tp}};
  manifest.writer = program_version();
  return manifest;
}

// The checkpoint that the run starts from, open and known to hold this model's tensors.
std::unique_ptr<CheckpointReader> open_start(const RunStart& start, const Manifest& needed) {
  if (!start.folder) return nullptr;
  auto reader = std::make_unique<CheckpointReader>(*start.folder);
  check_tensors(reader->manifest(), needed.tensors);
  if (!start.weights_only) check_states(reader->manifest(), needed);
  return reader;
}

// Random weights, or what the run starts from: its weights, or all of `states`. Collective in how
// it gives way to a wish to stop.
void fill_states(const RunStart& start, std::unique_ptr<CheckpointReader> reader, uint64_t seed,
                 std::vector<std::string> states, const std::vector<FlatBucket*>& buckets,
                 Communicator& world, const StopSignal& stop_signal) {
  if (start.weights_only) states = {kStateParam};
  for (FlatBucket* bucket : buckets) {
    if (stop_signal.requested()) break;
    if (reader)
      load_states({bucket}, states, *reader);
    else
      initialize_weights(*bucket, seed);
  }
  agree_on_stop(world, stop_signal);
}

// Whether the run is to make up the validation of the step that it goes on from. A note of another
// step is of a save that was killed. Collective.
bool validation_owed(OwedValidation* note, const RunStart& start, const Data& data,
                     Communicator& world, Console& console) {
  const auto answers = agree(world, [&]() -> std::string {
    if (!note) return "";
    const bool owed = start.progress.step > 0 && note->is_owed(start.progress.step);
    if (owed && data.valid) return "owed";
    if (owed)
      console.warn(
          fmt::format("the validation of step {} was not made, and cannot be made up: "
                      "eval.every is 0 now",
                      start.progress.step));
    note->clear();
    return "";
  });
  return !answers[0].empty();
}

// By bucket, the name of the stage that it belongs to: of several that read it, the first.
std::vector<std::string> bucket_stages(const std::vector<Stage*>& stages,
                                       const BucketSet& bucket_set) {
  std::vector<std::string> names(bucket_set.buckets.size());
  for (size_t i = stages.size(); i-- > 0;)
    for (const int bucket : bucket_set.of_stage[i])
      names[static_cast<size_t>(bucket)] = stages[i]->name();
  return names;
}

const char* precision_text(const PrecisionSection& precision) {
  switch (precision.params) {
    case ParamsDtype::kBf16:
      return "bf16 with fp32 master weights";
    case ParamsDtype::kFp16:
      return "fp16 with fp32 master weights";
    case ParamsDtype::kFp64:
      return "fp64";
    case ParamsDtype::kFp32:
      break;
  }
  return "fp32";
}

void announce(const Config& config, const Manifest& manifest, const MeshShape& shape,
              Console& console) {
  int64_t parameters = 0;
  for (const auto& tensor : manifest.tensors) parameters += whole_box(tensor.shape).numel();
  console.line(fmt::format(
      "{} on {} rank{} (dp_replicate {} x dp_shard {} x tp {}), zero {}, {}, {} kernels",
      parameters_text(parameters), shape.world(), shape.world() == 1 ? "" : "s", shape.dp_replicate,
      shape.dp_shard, shape.tp, config.parallel.zero, precision_text(config.precision),
      config.device == "cpu" ? kernels::cpu_target() : "cuda"));
  if (config.device == "cuda")
    console.warn(
        "device: cuda; this program's code for GPUs has been compiled and has never run on one: "
        "compare the first losses with device: cpu before trusting a run");
}

template <typename T>
std::vector<T*> pointers(const std::vector<std::unique_ptr<T>>& owners) {
  std::vector<T*> result;
  for (const auto& owner : owners) result.push_back(owner.get());
  return result;
}

// The objects of a run in the order in which they depend on each other: mesh, data, checkpoints,
// model, buckets, executor, trainer. Everything that the user can have got wrong in the
// configuration or the files is found before the model's memory is allocated.
TrainOutcome run(const Config& requested, std::unique_ptr<Communicator> world,
                 const StopSignal& stop_signal, const TrainHooks& hooks,
                 OutOfMemory& out_of_memory) {
  // Ranks come to the first steps' collectives only when all have read and written what they start
  // from.
  auto start_up = std::make_optional<FileWork>(*world);
  Config config = with_threads(requested);
  start_threads(config.run.threads, *world);
  check_same_on_all_ranks(sights_of(config), *world);
  const MeshShape shape = resolve_mesh(config, world->size());
  Mesh mesh = with_keys<UserError>("parallel.tp, parallel.allow_tp_across_nodes: true", [&] {
    return Mesh(shape, std::move(world), config.parallel.allow_tp_across_nodes);
  });
  const bool root = mesh.world().rank() == 0;
  const Data data = open_same_data(config, mesh.world());
  agree_on_stop(mesh.world(), stop_signal);

  const std::filesystem::path run_dir = config.run.dir;
  const PreparedFolder prepared = prepare_run_folder(run_dir, mesh.world());
  Console console(root ? run_dir / "logs" / "train.log" : std::filesystem::path());
  for (const std::string& warning : prepared.warnings) console.warn(warning);
  CheckpointManager checkpoints(run_dir / "checkpoints", config.checkpoint.keep, mesh.world(),
                                [&](const std::string& text) { console.warn(text); });
  if (root) checkpoints.set_check([&] { prepared.lock->check(); });
  checkpoints.set_stop_check([&] { stop_signal.check(); });
  const auto fingerprints = data.train->fingerprints();
  const RunStart start = choose_start(config, checkpoints, run_dir / "checkpoints", fingerprints,
                                      mesh.world(), console);
  config.schedule.steps = start.schedule_steps;  // in place of auto: part of what a run records
  std::optional<OwedValidation> owed_note;
  if (root) owed_note.emplace(run_dir);
  const bool owed =
      validation_owed(owed_note ? &*owed_note : nullptr, start, data, mesh.world(), console);
  if (start.progress.step >= config.training.steps && !owed) {
    console.line(
        fmt::format("the run is complete: {} of {} steps are done; raise training.steps to go on",
                    start.progress.step, config.training.steps));
    return TrainOutcome::kDone;
  }

  TpTime tp_time;
  ModelOptions stage_options = model_options(config);
  stage_options.tensor_parallel.time = &tp_time;
  const auto owned_stages = config.model->make_stages(config.data.seq_len, mesh, stage_options);
  const auto stages = pointers(owned_stages);
  std::vector<ParameterTable*> tables;
  for (Stage* stage : stages) tables.push_back(&stage->table());
  resolve_groups(config.optimizer.groups, tables);
  resolve_keep_fp32("precision.keep_fp32", config.precision.keep_fp32, tables);
  Manifest manifest = manifest_of(config, shape, stages, fingerprints, start.record);
  auto reader = open_start(start, manifest);
  manifest.model = model_record(reader ? reader->manifest().model : nlohmann::json(), config.model,
                                config.data.seq_len);
  announce(config, manifest, shape, console);
  for (const std::string& text : data_warnings(config, data, start)) console.warn(text);
  MemoryReport memory(mesh.world(), mesh.device(), console);
  const ShardingPolicy policy = policy_of(config);
  const BucketPlan plan = plan_buckets(stages, policy);
  const MemoryCase memory_needs = memory_case(config, shape, stages, plan);
  out_of_memory.expect(mesh.world().rank(), mesh.device(), memory_needs);
  std::unique_ptr<MomentFile> moments;
  if (policy.moments_on_disk) {
    moments = with_keys<UserError>("memory.offload_dir", [&] {
      return std::make_unique<MomentFile>(config.memory.offload_dir,
                                          moment_store_bytes(plan, shape.dp_shard));
    });
    if (!moments->warning().empty()) console.warn("memory.offload_dir: " + moments->warning());
  }
  const BucketSet bucket_set = make_buckets(plan, mesh, moments.get());
  const auto buckets = bucket_set.pointers();
  const auto stage_names = bucket_stages(stages, bucket_set);
  fill_states(start, std::move(reader), config.run.seed, manifest.states, buckets, mesh.world(),
              stop_signal);
  if (moments) moments->release();
  StepExecutor executor(stages, buckets, bucket_set.of_stage, memory_needs.options);
  TpGradientSum tp_gradients(buckets, mesh);
  MemoryLedger ledger = executor.ledger();
  if (bucket_set.offload) bucket_set.offload->add_to(ledger);
  tp_gradients.add_to(ledger);
  const int64_t tokens = config.training.micro_batch_size * config.data.targets_per_sample();
  for (const Stage* stage : stages) ledger.add(MemoryClass::kLogits, stage->logits_bytes(tokens));
  out_of_memory.allocated(ledger);
  memory.start(ledger, predicted_memory(config, memory_needs, stages, plan, mesh.dp_shard_rank()));

  std::optional<MetricsFile> metrics;
  if (root) {
    Config written = config;  // also good for another run, whose schedule spans its own steps
    written.schedule.steps = requested.schedule.steps;
    write_file_atomic(run_dir / "config.yaml", to_yaml(written));
    write_run_hf_files(config, start, console);
    metrics.emplace(run_dir / "metrics.jsonl", start.progress.step,
                    [&](const std::string& text) { console.warn(text); });
  }
  Trainer trainer(
      {config, mesh, buckets, stage_names, executor, tp_gradients, tp_time, *data.train,
       data.valid.get(), checkpoints, manifest, console, metrics ? &*metrics : nullptr,
       owed_note ? &*owed_note : nullptr, owed, stop_signal, memory, moments.get(), hooks},
      start.progress);
  mesh.world().barrier().block();
  start_up.reset();
  const TrainOutcome outcome = trainer.run();
  stop_signal.ignore_from_now(root);
  if (outcome == TrainOutcome::kDone)
    console.line(
        fmt::format("done: {} steps; run folder {}", config.training.steps, run_dir.string()));
  return outcome;
}

// An error of communication, with the key that sets the limit which it says was passed.
std::string add_file_timeout_key(const std::string& text) {
  constexpr std::string_view kKey = " (communication.file_timeout)";
  const bool passed = text.find(kFileWorkLimit) != std::string::npos;
  const bool named = text.find(kKey) != std::string::npos;  // by the rank that it comes from
  return passed && !named ? fmt::format("{}{}", text, kKey) : text;
}

}  // namespace

TrainOutcome train(const Config& config, std::unique_ptr<Communicator> world,
                   const StopSignal& stop_signal, const TrainHooks& hooks) {
  OutOfMemory out_of_memory;
  const bool root = world->rank() == 0;
  try {
    return run(config, std::move(world), stop_signal, hooks, out_of_memory);
  } catch (const StopRequested&) {  // on all ranks alike
    stop_signal.ignore_from_now(root);
    if (root)
      fmt::print("stopped on request before training began; start the same command to go on\n");
    return TrainOutcome::kStoppedAfterSave;
  } catch (const c10::OutOfMemoryError& error) {
    out_of_memory.explain(error);
  } catch (const Error& error) {
    const std::string text = add_file_timeout_key(error.what());
    if (text == error.what()) throw;
    throw Error(text);
  }
}

}  // namespace tessera
