#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/watchdog_section.h"
#include "models/model_input.h"
#include "models/registry.h"
#include "optim/optimizer_config.h"
#include "parallel/tensor_parallel/tp_overlap.h"

namespace tessera {

enum class ParamsDtype { kFp32, kBf16, kFp16, kFp64 };
enum class BufferDtype { kFp32, kBf16 };
enum class ReduceDtype { kFp32, kBf16, kBf16Wire };
enum class OutputDtype { kParams, kFp32, kBf16 };
enum class AutoFlag { kAuto, kTrue, kFalse };
enum class Recompute { kNone, kFull, kSelective };
enum class Offload { kNone, kOptimizer, kAll };
enum class OnSaveError { kStop, kWarn };
enum class OnNonfinite { kStop, kSkip, kRollback };
enum class FaultMoment { kStart, kData, kCompute, kCollective, kSave, kValidation };
enum class FaultDeed { kThrow, kExit, kKill, kStop, kSkip, kResize };
enum class DoctorAtStart { kQuick, kOff };

struct RunSection {
  std::string dir;  // required
  uint64_t seed = 42;
  int threads = 0;  // of each rank; 0: auto, OMP_NUM_THREADS if it is set, else 1
  DoctorAtStart doctor = DoctorAtStart::kQuick;
};

inline constexpr int64_t kReshardAlways = -1;
inline constexpr int64_t kReshardNever = 0;

struct ParallelSection {
  int tp = 1;
  int dp_shard = 0;  // 0: auto, what the number of ranks leaves
  int dp_replicate = 1;
  int zero = 3;
  // kReshardAlways, kReshardNever, or how many stages at the end of the chain stay gathered.
  int64_t reshard_after_forward = kReshardAlways;
  int prefetch = 1;
  AutoFlag reduce_per_micro_batch = AutoFlag::kAuto;
  bool allow_tp_across_nodes = false;
  bool sequence_parallel = false;  // of no effect where tp is 1
  TpOverlap tp_overlap = TpOverlap::kBackward;
};

struct PrecisionSection {
  ParamsDtype params = ParamsDtype::kFp32;
  ReduceDtype reduce = ReduceDtype::kFp32;
  OutputDtype output = OutputDtype::kParams;
  BufferDtype buffers = BufferDtype::kFp32;
  std::vector<std::string> keep_fp32;  // patterns of parameter names
  LossScaleConfig loss_scale;
};

// Whether parameters are fp16, whose range is so small that the loss has to be scaled.
inline bool is_fp16(const PrecisionSection& precision) {
  return precision.params == ParamsDtype::kFp16;
}

struct MemorySection {
  Recompute recompute = Recompute::kNone;
  int recompute_every = 1;  // with recompute full: of every k-th stage
  Offload offload = Offload::kNone;
  std::string offload_dir;  // a folder for the optimizer's moments; empty: they stay in memory
  int64_t loss_chunk = 0;   // tokens whose logits exist at once; 0: auto
};

struct DataSection {
  DataKind kind = DataKind::kTokens;
  std::vector<std::string> train;  // prefixes, of images files; required
  std::vector<std::string> valid;  // optional; required if eval.every > 0
  int64_t seq_len = 0;             // tokens: required; else 0
  // Of images alone.
  std::vector<double> mean, std;  // by channel; empty: 0 and 1
  bool flip = false;
  // Of pairs alone, all required (valid_target with valid).
  std::vector<std::string> train_target, valid_target;
  int64_t source_len = 0, target_len = 0;
  std::optional<int64_t> pad_id, bos_id, eos_id;

  // Of a sample, padding included.
  int64_t targets_per_sample() const {
    return kind == DataKind::kTokens ? seq_len : kind == DataKind::kImages ? 1 : target_len;
  }
};

struct TrainingSection {
  int64_t steps = 0;              // required
  int64_t global_batch_size = 0;  // required
  int64_t micro_batch_size = 1;
  double clip_grad_norm = 1.0;   // 0: off
  double clip_grad_value = 0.0;  // 0: off; not with clip_grad_norm
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  int64_t max_skips = 10;  // in a row
  int64_t log_every = 1;   // 0: off (metrics.jsonl still has every step)
  std::optional<int64_t> stop_after;
  bool log_samples = false;
  bool log_stage_norms = false;
};

struct EvalSection {
  int64_t every = 0;                   // 0: off
  std::optional<int64_t> batches = 8;  // nullopt: as many as there are
};

struct CheckpointSection {
  int64_t every = 0;        // 0: only at the end and on request
  int keep = 3;             // of the newest; 0: all
  int64_t keep_every = 0;   // those of multiples of so many steps stay; 0: none do
  int keep_best = 0;        // so many with the lowest validation loss stay; 0: none do
  bool async = true;        // saves run beside training
  int64_t staging_mib = 0;  // host memory of each rank for that; 0: auto
  std::string staging_dir;  // a folder on the node's own disk; empty: none
  OnSaveError on_error = OnSaveError::kStop;
  std::string resume = "auto";  // auto | none | a step folder
  std::string init_from;        // a folder whose weights start the run; empty: random
  // Keys that decide the mathematics and may be changed on a resume all the same.
  std::vector<std::string> allow_change;
};

struct CommunicationSection {
  int64_t timeout = 600;        // seconds
  int64_t file_timeout = 3600;  // seconds
  bool shared_memory = true;
};

// What one rank does wrong, once, when it comes there.
struct InjectedFault {
  int rank = 0;      // of the world
  int64_t step = 0;  // 0: the start
  FaultMoment at = FaultMoment::kStart;
  FaultDeed deed = FaultDeed::kThrow;
};

struct DebugSection {
  bool poison_released = false;        // released parameter storage points at NaNs
  bool check_collectives = false;      // the checked communicator
  bool overlap = true;                 // false: no operation runs beside the computation
  int64_t compare_replicas_every = 0;  // steps; 0: off
  std::optional<InjectedFault> inject;
};

struct Config {
  RunSection run;
  std::string device = "cpu";
  AnyModel model;
  ParallelSection parallel;
  PrecisionSection precision;
  MemorySection memory;
  DataSection data;
  TrainingSection training;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EvalSection eval;
  CheckpointSection checkpoint;
  CommunicationSection communication;
  WatchdogSection watchdog;
  DebugSection debug;
};

}  // namespace tessera
