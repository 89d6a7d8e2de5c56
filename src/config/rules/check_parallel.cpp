#include "config/rules/check_parallel.h"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/good_tps.h"

namespace tessera {
namespace {

struct SampleLength {
  std::string what;  // the key that says it
  int64_t tokens;
};

// How many tokens of a sample the layers of the model see.
std::vector<SampleLength> sample_lengths(const Config& c) {
  switch (c.data.kind) {
    case DataKind::kTokens:
      return {{"data.seq_len", c.data.seq_len}};
    case DataKind::kPairs:
      return {{"data.source_len", c.data.source_len}, {"data.target_len", c.data.target_len}};
    case DataKind::kImages:
      return {{"tokens of an image", c.model->input().image_tokens}};
  }
  fail("config", "data.kind {}", static_cast<int>(c.data.kind));
}

void check_sequence_parallel(const Config& c, RuleReport& report) {
  if (c.parallel.tp_overlap == TpOverlap::kRing && !c.parallel.sequence_parallel) {
    report.broken(
        {"parallel.tp_overlap", "parallel.sequence_parallel"},
        "parallel.tp_overlap: ring; what it sends around the ring are the gathers and sums of "
        "sequence parallelism; set parallel.sequence_parallel: true, or tp_overlap: backward");
  }
  if (!c.parallel.sequence_parallel) return;
  const int64_t tp = c.parallel.tp, rows = c.training.micro_batch_size;
  for (const auto& [what, length] : sample_lengths(c)) {
    const std::string key = c.data.kind == DataKind::kImages ? "model" : what;
    if (rows * length % tp == 0) continue;
    const int64_t step = tp / std::gcd(tp, rows);  // of which the length may be a multiple
    const std::string other =
        c.data.kind == DataKind::kImages
            ? ""
            : fmt::format(", or a {} of {}", what, (length / step + 1) * step);
    report.broken({"parallel.sequence_parallel", "parallel.tp", "training.micro_batch_size", key},
                  "parallel.sequence_parallel: true; parallel.tp {} must divide the tokens of a "
                  "micro-batch, training.micro_batch_size {} x {} {} = {}; a multiple of {} as "
                  "micro_batch_size would do{}",
                  tp, rows, what, length, rows * length, tp / std::gcd(tp, length), other);
  }
}

}  // namespace

void check_zero(const ParallelSection& p, RuleReport& report) {
  if (p.zero < 3 && p.reshard_after_forward != kReshardAlways) {
    report.broken({"parallel.reshard_after_forward", "parallel.zero"},
                  "parallel.reshard_after_forward: {}; at parallel.zero {} parameters stay in full "
                  "anyway; leave it out or set zero: 3",
                  p.reshard_after_forward == kReshardNever
                      ? "false"
                      : std::to_string(p.reshard_after_forward),
                  p.zero);
  }
  if (p.zero < 2 && p.reduce_per_micro_batch == AutoFlag::kTrue) {
    report.broken(
        {"parallel.reduce_per_micro_batch", "parallel.zero"},
        "parallel.reduce_per_micro_batch: true; parallel.zero {} keeps gradients in full and "
        "reduces them once a step; leave it out (auto) or set zero: 2, which reduces each "
        "micro-batch",
        p.zero);
  }
}

void check_parallel(const Config& c, RuleReport& report) {
  const std::string why = c.model->why_not_tp(c.parallel.tp);
  if (!why.empty())
    report.broken({"parallel.tp", "model"}, "parallel.tp: {}; {}; for this model these work: {}",
                  c.parallel.tp, why, good_tps(*c.model, 4096));
  check_sequence_parallel(c, report);
}

}  // namespace tessera
