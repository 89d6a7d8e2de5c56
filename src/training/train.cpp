#include "training/train.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/folder_lock.h"
#include "base/version.h"
#include "config/load.h"
#include "optim/optimizer.h"
#include "optim/parameter_groups.h"
#include "parallel/executor/bucket_set.h"
#include "parallel/executor/memory_model.h"
#include "parallel/fsdp/initialize.h"
#include "parallel/fsdp/moment_file.h"
#include "parallel/fsdp/tp_gradient_sum.h"
#include "parallel/keep_fp32.h"
#include "training/config_agreement.h"
#include "training/data_warnings.h"
#include "training/memory_report.h"
#include "training/model_record.h"
#include "training/open_data.h"
#include "training/out_of_memory.h"
#include "training/run_hf_files.h"
#include "training/run_options.h"
#include "training/run_start.h"
#include "training/train_state.h"
#include "training/trainer.h"

namespace tessera {
namespace {

// The number of threads is part of what a run records, so auto is replaced by what it stands for.
Config with_threads(Config config) {
  if (config.run.threads == 0) {
    const char* variable = std::getenv("OMP_NUM_THREADS");
    config.run.threads = std::max(1, variable ? std::atoi(variable) : 1);
  }
  return config;
}

// Rank 0 makes the run folder and keeps other runs out of it; the others go on when it is there.
std::unique_ptr<FolderLock> make_run_folder(const std::filesystem::path& dir, Communicator& world) {
  std::unique_ptr<FolderLock> lock;
  if (world.rank() == 0) {
    std::error_code error;
    for (const char* name : {"checkpoints", "logs"}) {
      std::filesystem::create_directories(dir / name, error);
      if (error)
        fail_user("train", "cannot make the folder {}: {}; choose another run.dir",
                  (dir / name).string(), error.message());
    }
    lock = std::make_unique<FolderLock>(dir);
  }
  world.barrier().wait();
  return lock;
}

Manifest manifest_of(const Config& config, const MeshShape& mesh, const std::vector<Stage*>& stages,
                     const std::vector<std::string>& data) {
  Manifest manifest;
  manifest.seed = config.run.seed;
  manifest.states = checkpoint_states(config.optimizer);
  manifest.tensors = tensor_infos(stages);
  manifest.config = to_json(config);
  manifest.data = data;
  manifest.mesh = {
      {"dp_replicate", mesh.dp_replicate}, {"dp_shard", mesh.dp_shard}, {"tp", mesh.tp}};
  manifest.writer = program_version();
  return manifest;
}

// The checkpoint that the run starts from, open and known to hold this model's tensors.
std::unique_ptr<CheckpointReader> open_start(const RunStart& start,
                                             const std::vector<TensorInfo>& tensors) {
  if (!start.folder) return nullptr;
  auto reader = std::make_unique<CheckpointReader>(*start.folder);
  check_tensors(reader->manifest(), tensors);
  return reader;
}

// Random weights, or what the run starts from: its weights, or all of `states`.
void fill_states(const RunStart& start, std::unique_ptr<CheckpointReader> reader, uint64_t seed,
                 std::vector<std::string> states, const std::vector<FlatBucket*>& buckets) {
  if (!reader) {
    for (FlatBucket* bucket : buckets) initialize_weights(*bucket, seed);
    return;
  }
  if (start.weights_only) states = {kStateParam};
  load_states(buckets, states, *reader);
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
      "{:.2f}M parameters on {} ranks (dp_replicate {} x dp_shard {} x tp {}), zero {}, {}",
      static_cast<double>(parameters) / 1e6, shape.world(), shape.dp_replicate, shape.dp_shard,
      shape.tp, config.parallel.zero, precision_text(config.precision)));
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
  const Config config = with_threads(requested);
  at::set_num_threads(config.run.threads);
  check_same_config(config, *world);
  const MeshShape shape = resolve_mesh(config, world->size());
  Mesh mesh(shape, std::move(world), config.parallel.allow_tp_across_nodes);
  const bool root = mesh.world().rank() == 0;
  const Data data = open_data(config, root);

  const std::filesystem::path run_dir = config.run.dir;
  const auto lock = make_run_folder(run_dir, mesh.world());
  Console console(root ? run_dir / "logs" / "train.log" : std::filesystem::path());
  CheckpointManager checkpoints(run_dir / "checkpoints", config.checkpoint.keep, mesh.world(),
                                [&](const std::string& text) { console.warn(text); });
  const auto fingerprints = data.train->fingerprints();
  const RunStart start =
      choose_start(config, checkpoints, run_dir / "checkpoints", fingerprints, console);
  if (start.progress.step >= config.training.steps) {
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
  resolve_keep_fp32(config.precision.keep_fp32, tables);
  Manifest manifest = manifest_of(config, shape, stages, fingerprints);
  auto reader = open_start(start, manifest.tensors);
  manifest.model = model_record(reader ? reader->manifest().model : nlohmann::json(), *config.model,
                                config.data.seq_len);
  announce(config, manifest, shape, console);
  for (const std::string& text : data_warnings(config, data, start)) console.warn(text);
  MemoryReport memory(mesh.world(), mesh.device(), console);
  const ShardingPolicy policy = policy_of(config);
  const BucketPlan plan = plan_buckets(stages, policy);
  const auto options = executor_options(config, static_cast<int>(stages.size()));
  const ChainSize size = chain_size(stages, plan, options);
  out_of_memory.expect(mesh.world().rank(), mesh.device(),
                       {size, shape, policy, options, config.training.micro_batch_size,
                        config.memory.recompute == Recompute::kSelective});
  std::unique_ptr<MomentStore> moments;
  if (policy.moments_on_disk)
    moments = std::make_unique<MomentFile>(config.memory.offload_dir,
                                           moment_store_bytes(plan, shape.dp_shard));
  const BucketSet bucket_set = make_buckets(plan, mesh, moments.get());
  const auto buckets = bucket_set.pointers();
  const auto stage_names = bucket_stages(stages, bucket_set);
  fill_states(start, std::move(reader), config.run.seed, manifest.states, buckets);
  if (moments) moments->release();
  StepExecutor executor(stages, buckets, bucket_set.of_stage, options);
  TpGradientSum tp_gradients(buckets, mesh);
  MemoryLedger ledger = executor.ledger(), predicted = predict_memory(size, shape, policy, options);
  if (bucket_set.offload) bucket_set.offload->add_to(ledger);
  const int64_t tokens = config.training.micro_batch_size * config.data.targets_per_sample();
  for (MemoryLedger* sum : {&ledger, &predicted}) {
    tp_gradients.add_to(*sum);
    for (const Stage* stage : stages) sum->add(MemoryClass::kLogits, stage->logits_bytes(tokens));
  }
  out_of_memory.allocated(ledger);
  memory.start(ledger, predicted);

  std::optional<MetricsFile> metrics;
  if (root) {
    write_file_atomic(run_dir / "config.yaml", to_yaml(config));
    write_run_hf_files(config, start, console);
    metrics.emplace(run_dir / "metrics.jsonl", start.progress.step);
  }
  Trainer trainer({config, mesh, buckets, stage_names, executor, tp_gradients, tp_time, *data.train,
                   data.valid.get(), checkpoints, manifest, console, metrics ? &*metrics : nullptr,
                   stop_signal, memory, moments.get(), hooks},
                  start.progress);
  const TrainOutcome outcome = trainer.run();
  if (outcome == TrainOutcome::kDone)
    console.line(
        fmt::format("done: {} steps; run folder {}", config.training.steps, run_dir.string()));
  return outcome;
}

}  // namespace

TrainOutcome train(const Config& config, std::unique_ptr<Communicator> world,
                   const StopSignal& stop_signal, const TrainHooks& hooks) {
  OutOfMemory out_of_memory;
  try {
    return run(config, std::move(world), stop_signal, hooks, out_of_memory);
  } catch (const c10::OutOfMemoryError& error) {
    out_of_memory.explain(error);
  }
}

}  // namespace tessera
