#pragma once

#include <string>
#include <vector>

#include "config/keys/fields.h"

// The sections of describe(), each bound to the part of the configuration that it is given.
namespace tessera {

Section run_section(RunSection& run);
Section top_level_section(std::string& device);  // keys that are in no section
// The keys of the model that is chosen; choosing another replaces it, and so the keys.
Section model_section(AnyModel& model);
Section parallel_section(ParallelSection& parallel);
Section precision_section(PrecisionSection& precision);
std::vector<Field> loss_scale_fields(LossScaleConfig& config);  // keys of `precision`
Section memory_section(MemorySection& memory);
Section data_section(DataSection& data);
Section training_section(TrainingSection& training);
Section optimizer_section(OptimizerConfig& config);
Section schedule_section(ScheduleConfig& config);
Section eval_section(EvalSection& eval);
Section checkpoint_section(CheckpointSection& checkpoint);
Section communication_section(CommunicationSection& communication);
Section watchdog_section(WatchdogSection& watchdog);
Section debug_section(DebugSection& debug);

}  // namespace tessera
