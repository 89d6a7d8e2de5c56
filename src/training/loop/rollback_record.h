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

// checkpoints/rollback.json records which samples the rollbacks of a run have taken out and how
// often it has failed; the checkpoints themselves are never changed. It is written before training
// goes on after a rollback: a run that is killed before its next checkpoint then neither trains on
// these samples again nor forgets its failures. Checkpoints that are saved later hold the same
// facts, so the record is no longer needed then.

// A digest of what decides which sample a sample counter stands for: equal for equal seeds, data
// and lengths of samples (data.seq_len). The samples of a record are left out only in the order
// that it was written for.
std::string order_of(uint64_t seed, const nlohmann::json& data, const nlohmann::json& config);

// Writes the record of `progress` right after a rollback. Rank 0 writes; if that fails, all ranks
// throw. Collective.
void write_rollback_record(const std::filesystem::path& checkpoint_dir, const Progress& progress,
                           const std::string& order, Communicator& world);

// For a run that resumes: if the record beside its checkpoint has rollbacks that the checkpoint was
// saved too early to know of, takes them into `progress`, so that their samples stay left out and
// their failures count. Rank 0 reads, and all ranks take the same. UserError that names the file if
// it is damaged. Collective.
void take_rollback_record(const std::filesystem::path& checkpoint_dir, const std::string& order,
                          Progress& progress, Communicator& world, Console& console);

// A run that does not begin at a checkpoint of its own folder (`start`: where it begins, if at one)
// has made no rollback yet: a record there is of a run that is gone, and is moved to
// rollback.json.old. Collective.
void set_rollback_record_aside(const std::filesystem::path& checkpoint_dir,
                               const std::optional<std::filesystem::path>& start,
                               Communicator& world, Console& console);

}  // namespace tessera
