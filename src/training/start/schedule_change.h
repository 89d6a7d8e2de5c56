#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/config.h"

namespace tessera {

// The learning rate that a configuration gives to each step.
struct Rates {
  ScheduleConfig schedule;  // with its number of steps
  double peak = 0.0;
  double at(int64_t step) const;
};
Rates rates_of(const Config& config);

// Those of a configuration that a checkpoint has saved. Programs that knew no schedule.steps
// spanned training.steps. UserError if the saved one cannot be read.
Rates saved_rates(const nlohmann::json& saved);

// What to say where a run that goes on after `step`, up to step `last`, follows another learning
// rate than it would have: the first step at which they part, with both. nullopt: they are the
// same.
std::optional<std::string> rate_change(const Rates& saved, const Rates& now, int64_t step,
                                       int64_t last);

}  // namespace tessera
