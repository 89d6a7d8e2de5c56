#include "training/train.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/files/files.h"
#include "base/process/omp_num_threads.h"
#include "base/process/stop_requested.h"
#include "base/version.h"
#include "checkpoint/store/reader.h"
#include "config/keys/with_keys.h"
#include "config/rules/check_inject.h"
#include "config/rules/resolve_mesh.h"
#include "config/save.h"
#include "doctor/start_check.h"
#include "kernels/cpu_target.h"
#include "optim/optimizer.h"
#include "parallel/comm/core/agreement.h"
#include "parallel/comm/core/file_work.h"
#include "parallel/comm/core/file_work_limit.h"
#include "training/engine/engine.h"
#include "training/engine/out_of_memory.h"
#include "training/loop/fault_injection.h"
#include "training/loop/owed_validation.h"
#include "training/loop/stop_agreement.h"
#include "training/loop/trainer.h"
#include "training/output/memory_report.h"
#include "training/output/reporter.h"
#include "training/output/start_record.h"
#include "training/start/data_warnings.h"
#include "training/start/model_record.h"
#include "training/start/open_data.h"
#include "training/start/prepare_run_folder.h"
#include "training/start/rank_agreement.h"
#include "training/start/resume_rules.h"
#include "training/start/run_hf_files.h"
#include "training/start/run_start.h"
#include "training/start/threads.h"
#include "training/watch/watchdog.h"

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

// What all checkpoints of the run say, but for what follows from its start.
Manifest manifest_of(const Config& config, const EnginePlan& plan,
                     const std::vector<std::string>& data) {
  const MeshShape& mesh = plan.memory.mesh;
  Manifest manifest;
  manifest.seed = config.run.seed;
  manifest.states = checkpoint_states(config.optimizer);
  manifest.tensors = tensor_infos(plan.stages);
  manifest.data = data;
  manifest.mesh = {
      {"dp_replicate", mesh.dp_replicate}, {"dp_shard", mesh.dp_shard}, {"tp", mesh.tp}};
  manifest.writer = program_version();
  return manifest;
}

// What follows from the start of the run, whose checkpoint must hold this model's tensors.
void take_start(const RunStart& start, const Config& config, Manifest& manifest) {
  if (start.checkpoint) {
    const Manifest& stored = start.checkpoint->manifest();
    check_tensors(stored, manifest.tensors);
    if (!start.weights_only) check_states(stored, manifest);
  }
  manifest.config = to_json(config);
  manifest.run = to_json(start.record);
  manifest.model = model_record(start.model, config.model, config.data.seq_len);
}

// Random weights, or what the run starts from: its weights, or all of the states. Collective: if a
// rank was asked to stop meanwhile, all throw StopRequested.
void fill(Engine& engine, const RunStart& start, const Config& config,
          const StopSignal& stop_signal, Place& place) {
  const auto give_up = [&] {
    place.advance();
    return stop_signal.requested();
  };
  const auto states = start.weights_only ? std::vector<std::string>{kStateParam}
                                         : checkpoint_states(config.optimizer);
  if (start.hugging_face) {
    engine.load(states, *start.hugging_face, give_up);
  } else if (start.checkpoint) {
    CheckpointReader reader(start.checkpoint);
    reader.blocks().set_each_part([&] {
      place.advance();
      stop_signal.check();
    });
    engine.load(states, reader);
  } else {
    engine.initialize(config.run.seed, give_up);
  }
  throw_if_stop_agreed(engine.mesh().world(), stop_signal);
}

// Runs `read`, which reads the data of the checkpoint that the run starts from. False if they are
// damaged and an older checkpoint may take its place. Collective.
bool reads(const RunStart& start, CheckpointManager& checkpoints,
           const std::function<void()>& read) {
  if (start.newest_of_run && start.checkpoint)
    return checkpoints.load_or_set_aside(*start.checkpoint, read);
  read();
  return true;
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

// The text of an error. If it says that the limit of file work was passed, the key that sets that
// limit is added.
std::string add_file_timeout_key(const std::string& text) {
  constexpr std::string_view kKey = " (communication.file_timeout)";
  const bool passed = text.find(kFileWorkLimit) != std::string::npos;
  const bool named = text.find(kKey) != std::string::npos;  // by the rank that it comes from
  return passed && !named ? fmt::format("{}{}", text, kKey) : text;
}

// Runs `work` and returns its result. An error is thrown on with what a user needs to know to mend
// it, and told at once.
template <typename Work>
TrainOutcome told(StartRecord& record, const OutOfMemory& out_of_memory, const Work& work) {
  try {
    try {
      return work();
    } catch (const c10::OutOfMemoryError& error) {
      out_of_memory.explain(error);
    } catch (const Error& error) {
      const std::string text = add_file_timeout_key(error.what());
      if (text == error.what()) throw;
      throw_with_text<Error>(error, text);
    }
  } catch (const StopRequested&) {
    throw;
  } catch (const std::exception& error) {
    record.failed(error);
    throw;
  }
}

void record_end(TrainOutcome outcome, const Config& config, StartRecord& record) {
  if (outcome == TrainOutcome::kDone) return record.done();
  record.stopped(config.training.stop_after == record.step() ? "stop_after" : "request");
}

// A warning that ranks may have each for itself (empty: none), in the log of all: each text once,
// with the first rank that has it. Collective.
void warn_of_ranks(const std::string& about, const std::string& own, Communicator& world,
                   Console& console) {
  const std::vector<std::string> texts = gather_messages(world, own);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto here = texts.begin() + static_cast<int64_t>(rank);
    if (here->empty() || std::find(texts.begin(), here, *here) != here) continue;
    const auto others = std::count(here + 1, texts.end(), *here);
    const std::string who = texts.size() == 1 ? "" : fmt::format("rank {}: ", rank);
    const std::string more = others > 0 ? fmt::format(" (and on {} more ranks)", others) : "";
    console.warn(about + who + *here + more);
  }
}

// The run folder, with what keeps other runs out of it and what writes into it.
struct OpenFolder {
  std::filesystem::path path;
  bool keep_lines;  // of metrics.jsonl, while they cannot be written
  PreparedFolder prepared;
  Console console;
  CheckpointManager checkpoints;
  StartRecord& record;

  // `look`: called now and then while this waits or reads; what it throws ends that.
  OpenFolder(const Config& config, Communicator& world, const std::function<void()>& look,
             StartRecord& record_of_rank)
      : path(config.run.dir),
        keep_lines(config.checkpoint.on_error == OnSaveError::kWarn),
        prepared(prepare_run_folder(path, world, look)),
        console(world.rank() == 0 ? path / "logs" / "train.log" : std::filesystem::path(),
                [this] { return !prepared.lock || !prepared.lock->replaced(); }),
        checkpoints(
            path / "checkpoints",
            {config.checkpoint.keep, config.checkpoint.keep_every, config.checkpoint.keep_best},
            world, warn()),
        record(record_of_rank) {
    console.line(start_line(prepared, world.size()));
    record.set_folder(path, prepared.start, prepared.token);
    for (const std::string& warning : prepared.warnings) console.warn(warning);
    if (world.rank() == 0)
      checkpoints.set_owner([this] { prepared.lock->check(); }, prepared.names);
    checkpoints.set_stop_check(look);
    with_keys<UserError>("checkpoint.staging_dir",
                         [&] { checkpoints.use_staging_dir(config.checkpoint.staging_dir); });
    if (world.rank() == 0) record.set_log([this](const std::string& text) { console.log(text); });
  }
  // For parts that have something to say and know no console.
  std::function<void(const std::string&)> warn() {
    return [this](const std::string& text) { console.warn(text); };
  }
  // The lines of steps after `step` go. Null on all ranks but the root.
  std::unique_ptr<MetricsFile> open_metrics(bool root, int64_t step) {
    if (!root) return nullptr;
    const auto check = [this] {
      if (prepared.lock->replaced()) prepared.lock->check();
    };
    return std::make_unique<MetricsFile>(path / "metrics.jsonl", step, keep_lines, warn(), check);
  }
  ~OpenFolder() { record.set_log({}); }
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;
};

// The objects of a run in the order in which they depend on each other: mesh, data, run folder,
// plan, engine, trainer. Everything that the user can have got wrong in the configuration or the
// files is found before the model's memory is allocated.
TrainOutcome run(const Config& requested, std::unique_ptr<Communicator> joined,
                 const StopSignal& stop_signal, const TrainHooks& hooks, const Observers& observers,
                 Place& place, StartRecord& record, OutOfMemory& out_of_memory) {
  place.enter(Phase::kOpen, 0);
  // Until the first step ranks wait for each other as long as file work may take: some read and
  // write more than others.
  auto start_up = std::make_optional<FileWork>();
  Config config = with_threads(requested);
  start_threads(config.run.threads, *joined);
  check_same_on_all_ranks(sights_of(config), *joined);
  const MeshShape shape = resolve_mesh(config, joined->size());
  check_inject(config, joined->size());
  FaultInjection faults(config.debug.inject, *joined);
  joined = faults.wrap(std::move(joined));
  Mesh mesh = with_keys<UserError>("parallel.tp, parallel.allow_tp_across_nodes: true", [&] {
    return Mesh(shape, std::move(joined), config.parallel.allow_tp_across_nodes);
  });
  Communicator& world = mesh.world();
  const bool root = world.rank() == 0;
  if (observers.watchdog) observers.watchdog->set_mesh_place(mesh.dp_rank(), mesh.tp_rank());
  record.set_mesh_place(fmt::format("dp {}, tp {}", mesh.dp_rank(), mesh.tp_rank()));
  place.advance();
  const Data data = open_same_data(config, world);
  const auto fingerprints = data.train->fingerprints();
  throw_if_stop_agreed(world, stop_signal);

  const auto look = [&] {
    place.advance();
    stop_signal.check();
  };
  OpenFolder folder(config, world, look, record);
  Console& console = folder.console;
  if (config.run.doctor == DoctorAtStart::kQuick)
    for (const std::string& warning : doctor::check_start(world, config.run.threads))
      console.warn(warning);
  if (!faults.warning().empty()) console.warn(faults.warning());
  faults.reach(FaultMoment::kStart, 0);
  OwedValidation owed(folder.path, root);
  RunStart start;
  Manifest manifest;
  std::optional<MemoryReport> memory;
  std::optional<Engine> engine;
  std::optional<double> load_ms;
  // Once, but for checkpoints whose data turn out to be damaged: then all that follows from the
  // start is chosen anew.
  for (bool loaded = false; !loaded;) {
    config.schedule.steps = requested.schedule.steps;
    start = choose_start(config, folder.checkpoints, folder.path / "checkpoints", fingerprints,
                         world, console);
    config.schedule.steps = start.schedule_steps;  // in place of auto: part of what a run records
    record.set_step(start.progress.step);
    record.set_saved(start.progress.step);
    owed.find(start.progress.step, data.valid != nullptr, world, folder.warn());
    if (start.progress.step >= config.training.steps && !owed.owed()) {
      // Nothing of it is needed, but a later start may need it.
      if (!reads(start, folder.checkpoints, [&] { folder.checkpoints.verify(start.checkpoint); }))
        continue;
      console.line(
          fmt::format("the run is complete: {} of {} steps are done; raise training.steps to go on",
                      start.progress.step, config.training.steps));
      record.done();
      return TrainOutcome::kDone;
    }
    if (!engine) {
      place.enter(Phase::kPlan);
      EnginePlan plan = plan_engine(config, mesh, config.data.seq_len);
      plan.memory.options.place = &place;
      manifest = manifest_of(config, plan, fingerprints);
      take_start(start, config, manifest);
      announce(config, manifest, shape, console);
      for (const std::string& text : data_warnings(config, data, start)) console.warn(text);
      memory.emplace(world, mesh.device(), console);
      out_of_memory.expect(world.rank(), mesh.device(), plan.memory);
      engine.emplace(std::move(plan), config, mesh);
      warn_of_ranks("memory.offload_dir: ", engine->warning(), world, console);
      if (!engine->save_staging().note().empty()) console.line(engine->save_staging().note());
    } else {
      take_start(start, config, manifest);
    }
    place.enter(Phase::kLoad);
    loaded = reads(start, folder.checkpoints, [&] {
      const auto begun = std::chrono::steady_clock::now();
      fill(*engine, start, config, stop_signal, place);
      const std::chrono::duration<double, std::milli> taken =
          std::chrono::steady_clock::now() - begun;
      if (start.checkpoint) load_ms = taken.count();
    });
  }
  start.checkpoint.reset();  // its index may be large
  start.hugging_face.reset();
  out_of_memory.allocated(engine->ledger());
  memory->start(engine->ledger(), engine->predicted_memory());

  if (root) {
    Config written = config;  // also good for another run, whose schedule spans its own steps
    written.schedule.steps = requested.schedule.steps;
    write_file_atomic(folder.path / "config.yaml", to_yaml(written));
    write_run_hf_files(config, start, console);
  }
  const auto metrics = folder.open_metrics(root, start.progress.step);
  if (load_ms) console.line(fmt::format("loaded in {:.2f} s", *load_ms / 1e3));
  if (load_ms && metrics) metrics->write(LoadMetrics{start.progress.step, *load_ms});
  folder.checkpoints.forget_losses_after(start.progress.step);
  Reporter reporter(config, console, metrics.get(), *memory);
  CheckpointSaver saver(folder.checkpoints, world.host_group("checkpoint"),
                        engine->save_staging().staging());
  Trainer trainer({.config = config,
                   .engine = *engine,
                   .train_data = *data.train,
                   .valid_data = data.valid.get(),
                   .checkpoints = folder.checkpoints,
                   .saver = saver,
                   .manifest = manifest,
                   .reporter = reporter,
                   .owed = owed,
                   .stop_signal = stop_signal,
                   .faults = faults,
                   .hooks = hooks,
                   .place = place,
                   .record = record},
                  start.progress);
  world.barrier().block();
  start_up.reset();
  if (observers.watchdog && !observers.watchdog->warning().empty())
    console.warn(observers.watchdog->warning());
  // From here on the trainer looks for requests to stop. The checkpoint manager no longer does, so
  // that a rollback, which searches for a checkpoint, is not broken off.
  folder.checkpoints.set_stop_check([] {});
  // An error is told here, before the objects above go: the saver may still wait for a save.
  const TrainOutcome outcome = told(record, out_of_memory, [&] { return trainer.run(); });
  stop_signal.ignore_from_now(root);
  record_end(outcome, config, record);
  if (outcome == TrainOutcome::kDone)
    console.line(
        fmt::format("done: {} steps; run folder {}", config.training.steps, folder.path.string()));
  return outcome;
}

}  // namespace

TrainOutcome train(const Config& config, std::unique_ptr<Communicator> world,
                   const StopSignal& stop_signal, const TrainHooks& hooks,
                   const Observers& observers) {
  OutOfMemory out_of_memory;
  Place unseen_place;
  Place& place = observers.place ? *observers.place : unseen_place;
  StartRecord unseen_record;
  StartRecord& record = observers.record ? *observers.record : unseen_record;
  const bool root = world->rank() == 0;
  record.set_world(world->rank(), world->size());
  try {
    return told(record, out_of_memory, [&] {
      return run(config, std::move(world), stop_signal, hooks, observers, place, record,
                 out_of_memory);
    });
  } catch (const StopRequested&) {  // on all ranks alike
    stop_signal.ignore_from_now(root);
    if (root)
      fmt::print("stopped on request before training began; start the same command to go on\n");
    record.stopped("request");
    return TrainOutcome::kStoppedAfterSave;
  }
}

}  // namespace tessera
