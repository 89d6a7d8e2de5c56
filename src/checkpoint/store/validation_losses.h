#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

namespace tessera {

// RUN/checkpoints/validation.json: {"losses": {"100": 2.5, ...}}, the validation losses of a run by
// step, so that the best checkpoints can be told. Those that are not finite are not in it.
inline constexpr const char* kValidationFile = "validation.json";

// Empty if there is no such file. UserError that names it if it cannot be read.
std::map<int64_t, double> read_validation_losses(const std::filesystem::path& dir);

// Puts the loss of `step` in place of an earlier one. The file is replaced whole.
void record_validation_loss(const std::filesystem::path& dir, int64_t step, double loss);

// Removes the losses of steps after `step`, to which a run has gone back: it makes these steps
// anew.
void forget_validation_losses(const std::filesystem::path& dir, int64_t step);

}  // namespace tessera
