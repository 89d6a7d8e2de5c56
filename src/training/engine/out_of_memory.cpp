#include "training/engine/out_of_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/quantities.h"
#include "training/output/memory_report.h"

namespace tessera {
namespace {

std::string advice_text(const MemoryAdvice& advice) {
  return fmt::format("{} ({})", fmt::join(advice.settings, " with "), bytes_text(advice.needs));
}

}  // namespace

std::string advices_text(const MemoryAdvices& advices) {
  std::string text;
  if (advices.fitting.empty()) {
    text = "no one or two settings of which the effect is known would make it fit";
    if (!advices.closest.settings.empty())
      text += fmt::format("; closest comes {}", advice_text(advices.closest));
    text += "; use more ranks, or a larger parallel.tp";
  } else {
    std::vector<std::string> all;
    for (const MemoryAdvice& advice : advices.fitting) all.push_back(advice_text(advice));
    text = fmt::format("by what is known these would fit, the cheapest first: {}",
                       fmt::join(all, "; "));
  }
  if (!advices.unknown.empty())
    text += fmt::format(". Of unknown effect, on activations alone: {}",
                        fmt::join(advices.unknown, "; "));
  return text;
}

std::string out_of_memory_text(const MemoryCase& run, const std::optional<MemoryLedger>& ledger,
                               int64_t limit, const std::string& cause) {
  const MemoryLedger states =
      ledger.value_or(predict_memory(run.chain, run.mesh, run.policy, run.options));
  // The step asked for more than was left: that much is certain.
  const int64_t beside = ledger ? std::max<int64_t>(limit - states.total(), 0) + 1 : 0;
  const std::string step =
      ledger ? fmt::format("and a step needs more than the {} that are left", bytes_text(beside))
             : "and what a step needs beside that is not known yet";
  return fmt::format(
      "the GPU is full: {}. Of {} that this rank can have, the engine {} {}{}, {}; {}", cause,
      bytes_text(limit), ledger ? "holds" : "would hold", ledger_text(states),
      fmt::format("in memory {}", bytes_text(states.total())), step,
      advices_text(advise_memory(run, limit, beside)));
}

void OutOfMemory::expect(int rank, const Device& device, MemoryCase run) {
  rank_ = rank;
  device_ = device;
  run_ = std::move(run);
}

void OutOfMemory::explain(const c10::OutOfMemoryError& error) const {
  if (!run_) throw error;
  fail("memory", "rank {}: {}", rank_,
       out_of_memory_text(*run_, ledger_, device_.memory().limit, error.what_without_backtrace()));
}

}  // namespace tessera
