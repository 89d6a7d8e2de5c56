#include "config/rules/check_inject.h"

#include "config/keys/key_places.h"

namespace tessera {
namespace {

bool due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

void check_step(const Config& c, const InjectedFault& fault, RuleReport& report) {
  const int64_t step = fault.step, last = c.training.steps;
  if (fault.at == FaultMoment::kStart) {
    if (step != 0)
      report.broken({"debug.inject.step", "debug.inject.at"},
                    "debug.inject.step: {}; the start (debug.inject.at: start) is before the first "
                    "step; leave step out",
                    step);
    return;
  }
  if (step < 1 || step > last) {
    report.broken({"debug.inject.step", "training.steps"},
                  "debug.inject.step: {}; must be from 1 to training.steps {}, or with "
                  "debug.inject.at: start be left out",
                  step, last);
    return;
  }
  if (fault.at == FaultMoment::kValidation &&
      !(due(step, c.eval.every) || (c.eval.every > 0 && step == last)))
    report.broken({"debug.inject.step", "debug.inject.at", "eval.every"},
                  "debug.inject.step: {}; no validation follows it (eval.every: {}); give the "
                  "number of a step after which there is one",
                  step, c.eval.every);
  if (fault.at == FaultMoment::kSave && !due(step, c.checkpoint.every) && step != last &&
      step != c.training.stop_after)
    report.broken({"debug.inject.step", "debug.inject.at", "checkpoint.every"},
                  "debug.inject.step: {}; it is not saved (checkpoint.every: {}); give the number "
                  "of a step that is",
                  step, c.checkpoint.every);
}

}  // namespace

void check_inject(const Config& config, RuleReport& report) {
  if (!config.debug.inject) return;
  const InjectedFault& fault = *config.debug.inject;
  const bool of_collective = fault.deed == FaultDeed::kSkip || fault.deed == FaultDeed::kResize;
  if (of_collective && fault.at != FaultMoment::kCollective)
    report.broken({"debug.inject.do", "debug.inject.at"},
                  "debug.inject.do: {}; it is done to a collective; set debug.inject.at: "
                  "collective, or do: throw, exit, kill or stop",
                  fault.deed == FaultDeed::kSkip ? "skip" : "resize");
  check_step(config, fault, report);
}

void check_inject(const Config& config, int ranks, RuleReport& report) {
  if (!config.debug.inject) return;
  const InjectedFault& fault = *config.debug.inject;
  if (fault.rank >= ranks)
    report.broken({"debug.inject.rank"}, "debug.inject.rank: {}; with {} rank{} it must be {}",
                  fault.rank, ranks, ranks == 1 ? "" : "s",
                  ranks == 1 ? "0" : fmt::format("from 0 to {}", ranks - 1));
  else if (ranks == 1 && fault.at == FaultMoment::kCollective)
    report.broken({"debug.inject.at"},
                  "debug.inject.at: collective; a run on one rank has no collectives of several "
                  "ranks; start several");
}

void check_inject(const Config& config, int ranks) {
  Mistakes mistakes;
  const KeyPlaces nowhere;
  PlacedReport report(nowhere, mistakes);
  check_inject(config, ranks, report);
  mistakes.throw_if_any();
}

}  // namespace tessera
