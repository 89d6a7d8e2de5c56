#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "config/config.h"
#include "data/sample_source.h"
#include "training/engine/engine.h"
#include "training/loop/batches.h"
#include "training/output/metrics.h"

namespace tessera {

// How this rank's micro-batches are cut from a global batch.
BatchShape batch_shape(const Config& config, const Mesh& mesh);

// The mean loss and scores over the validation data (eval.batches of them), in their order. Each
// sample counts once: in the rows of one data-parallel rank and, of the tp ranks, which hold the
// same sums, in one's. `break_off` is called before each batch with the number of samples that are
// done; if it returns true, the evaluation ends and the result is nullopt. The same numbers on
// every rank and every mesh. Collective.
std::optional<EvalMetrics> evaluate(const Config& config, Engine& engine,
                                    const SampleSource& source, int64_t step,
                                    const std::function<bool(int64_t done)>& break_off);

}  // namespace tessera
