#include "base/process/place.h"

#include <fmt/format.h>

namespace tessera {
namespace {

// The word, from its low end: 5 bits of phase, 19 bits of stage + 1, 40 bits of step. Stages and
// steps beyond that (configurations allow 10^12 steps, which fit) are cut off: a place is told, not
// computed with.
constexpr int kPhaseBits = 5, kStageBits = 19;
constexpr uint64_t kPhaseMask = (uint64_t{1} << kPhaseBits) - 1;
constexpr uint64_t kStageMask = (uint64_t{1} << kStageBits) - 1;

uint64_t pack(Phase phase, int stage, int64_t step) {
  return static_cast<uint64_t>(phase) |
         (static_cast<uint64_t>(stage + 1) & kStageMask) << kPhaseBits |
         static_cast<uint64_t>(step) << (kPhaseBits + kStageBits);
}

Phase phase_of(uint64_t word) {
  return static_cast<Phase>(word & kPhaseMask);
}

int stage_of(uint64_t word) {
  return static_cast<int>(word >> kPhaseBits & kStageMask) - 1;
}

int64_t step_of(uint64_t word) {
  return static_cast<int64_t>(word >> (kPhaseBits + kStageBits));
}

const char* description(Phase phase) {
  switch (phase) {
    case Phase::kLaunch:
      return "before the start of MPI";
    case Phase::kConnect:
      return "in the start of MPI";
    case Phase::kOpen:
      return "opening data and run folder";
    case Phase::kPlan:
      return "allocating the model";
    case Phase::kLoad:
      return "filling the model's weights";
    case Phase::kData:
      return "in the data loader";
    case Phase::kForward:
      return "in the forward pass";
    case Phase::kBackward:
      return "in the backward pass";
    case Phase::kSum:
      return "in the sums over ranks";
    case Phase::kUpdate:
      return "in the update";
    case Phase::kSave:
      return "in the save";
    case Phase::kValidate:
      return "in the validation";
    case Phase::kClose:
      return "at the end of the run";
  }
  return "in an unknown place";
}

}  // namespace

const char* phase_name(Phase phase) {
  constexpr const char* kNames[] = {"launch", "connect",  "open",     "plan", "load",
                                    "data",   "forward",  "backward", "sum",  "update",
                                    "save",   "validate", "close"};
  return kNames[static_cast<int>(phase)];
}

std::string PlaceView::text() const {
  std::string text = step > 0 ? fmt::format("at step {} ", step) : "";
  text += description(phase);
  if (stage >= 0) text += fmt::format(" of stage {}", stage);
  return text;
}

void Place::enter(Phase phase, int64_t step) {
  where_.store(pack(phase, -1, step), std::memory_order_relaxed);
  advance();
}

void Place::enter(Phase phase) {
  enter(phase, step_of(where_.load(std::memory_order_relaxed)));
}

void Place::stage(int index) {
  const uint64_t word = where_.load(std::memory_order_relaxed);
  where_.store(pack(phase_of(word), index, step_of(word)), std::memory_order_relaxed);
  advance();
}

PlaceView Place::view() const {
  const uint64_t word = where_.load(std::memory_order_relaxed);
  return {phase_of(word), step_of(word), stage_of(word), progress_.load(std::memory_order_relaxed)};
}

}  // namespace tessera
