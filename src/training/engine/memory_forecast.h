#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"
#include "parallel/memory_ledger.h"
#include "parallel/mesh_shape.h"
#include "training/engine/memory_advice.h"

namespace tessera {

// The memory of a run that has not been started; the machine that computes this need not have the
// run's devices. It is rank 0's: where something does not divide evenly, rank 0 has the largest
// part, so no rank holds more.
struct MemoryForecast {
  MemoryCase run;
  MemoryLedger ledger;  // of rank 0
};

// Allocates the table of the model's parameters, but no memory for a parameter. UserErrors are
// those of a start, such as for a pattern of names that fits no parameter. Does not communicate.
MemoryForecast forecast_memory(const Config& config, const MeshShape& mesh);

// Reports a forecast that does not fit `limit` bytes, with the cheapest settings that would.
void check_memory_limit(const MemoryForecast& forecast, int64_t limit, RuleReport& report);

}  // namespace tessera
