#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"
#include "training/engine/memory_advice.h"
#include "parallel/memory_ledger.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// The memory of a run that has not been started, on a machine that need not have its devices. No
// rank holds more than rank 0, which has the larger part of what does not divide.
struct MemoryForecast {
  MemoryCase run;
  MemoryLedger ledger;  // of rank 0
};

// Makes the tables of the model's parameters, and nothing as large as one of them. UserError as a
// start would give it, for patterns of names that fit no parameter among others.
MemoryForecast forecast_memory(const Config& config, const MeshShape& mesh);

// Reports a forecast that does not fit `limit` bytes, with the cheapest settings that would.
void check_memory_limit(const MemoryForecast& forecast, int64_t limit, RuleReport& report);

}  // namespace tessera
