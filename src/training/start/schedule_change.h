#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/config.h"

namespace tessera {

// The learning rates of a run's steps.
struct Rates {
  ScheduleConfig schedule;  // with its number of steps
  double peak = 0.0;
  double at(int64_t step) const;
};
// The rates of a configuration; schedule.steps: auto stands for training.steps.
Rates rates_of(const Config& config);

// The rates of the configuration that a checkpoint has saved. If it has no key schedule.steps (an
// older program), its schedule spans training.steps, as it did then. UserError if it cannot be
// read.
Rates saved_rates(const nlohmann::json& saved);

// A warning if a run that goes on after `step`, up to step `last`, has other learning rates (`now`)
// than the saved run would have had: it names the first such step that it finds and both rates.
// nullopt: the rates are the same.
std::optional<std::string> rate_change(const Rates& saved, const Rates& now, int64_t step,
                                       int64_t last);

}  // namespace tessera
