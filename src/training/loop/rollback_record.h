#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/comm/core/communicator.h"
#include "training/loop/progress.h"
#include "training/output/console.h"

namespace tessera {

// What the rollbacks of a run have found, in checkpoints/rollback.json beside the checkpoints,
// which themselves are never touched: written before training goes on after a rollback, so that a
// run that is killed before its next checkpoint neither meets the samples again nor forgets how
// often it has failed. A checkpoint that was saved later says the same and more.

// Names the order that sample counters count in: equal for equal seeds, data and cuts into samples.
std::string order_of(uint64_t seed, const nlohmann::json& data, const nlohmann::json& config);

// Writes the record of `progress`, which has just gone back. Rank 0 does; an error is everyone's.
// Collective.
void write_rollback_record(const std::filesystem::path& checkpoint_dir, const Progress& progress,
                           const std::string& order, Communicator& world);

// Takes into `progress`, where a run resumes, the record beside its checkpoint, if it tells of
// rollbacks that the checkpoint does not know: their samples stay left out, their failures count.
// Rank 0 reads, and all ranks take the same. UserError that names the file if it is damaged.
// Collective.
void take_rollback_record(const std::filesystem::path& checkpoint_dir, const std::string& order,
                          Progress& progress, Communicator& world, Console& console);

// A run that does not begin at a checkpoint of its own folder (`start`: where it begins, if at one)
// has made no rollback yet: a record there is of a run that is gone, and is moved to
// rollback.json.old. Collective.
void set_rollback_record_aside(const std::filesystem::path& checkpoint_dir,
                               const std::optional<std::filesystem::path>& start,
                               Communicator& world, Console& console);

}  // namespace tessera
