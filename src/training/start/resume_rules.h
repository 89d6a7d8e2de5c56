#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "config/config.h"
#include "config/rules/resume.h"
#include "training/output/console.h"
#include "training/start/run_record.h"

namespace tessera {

// Resuming must train what the saved run would have trained: UserError where the configuration or
// the training data (`data`: their fingerprints) differ from the checkpoint's in what decides that,
// unless checkpoint.allow_change names it. In `config`, schedule.steps: auto is already replaced by
// its number. Returns the changes that allow_change let pass; says on the console what differs.
std::vector<ConfigChange> check_same_run(const Manifest& manifest, const Config& config,
                                         const std::vector<std::string>& data,
                                         const std::filesystem::path& folder, Console& console);

// UserError if the checkpoint lacks a state that training needs of a tensor (a parameter that was
// frozen has no moments).
void check_states(const Manifest& manifest, const Manifest& needed);

}  // namespace tessera
