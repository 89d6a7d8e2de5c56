#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera {

// What a rank does, in the order in which a run comes to it.
enum class Phase {
  kLaunch,   // before MPI
  kConnect,  // MPI starts; the communicator of all ranks is made
  kOpen,     // mesh, data, run folder, choice of the checkpoint to start from
  kPlan,     // stages and buckets are planned and allocated
  kLoad,     // initial weights, or those of a checkpoint
  kData,     // a step begins: samples are chosen and read
  kForward,
  kBackward,
  kSum,     // gradients and metrics are summed over ranks
  kUpdate,  // the optimizer, and what is written of the step
  kSave,
  kValidate,
  kClose  // the loop is over: last saves, MPI ends
};

// A word for messages: "launch", "forward".
const char* phase_name(Phase phase);

struct PlaceView {
  Phase phase = Phase::kLaunch;
  int64_t step = 0;  // the step that the rank is in; 0: none yet
  int stage = -1;    // index in the model's chain; -1: none
  int64_t progress = 0;

  // "at step 812 in the forward pass of stage 3", "in the start of MPI".
  std::string text() const;
  bool operator==(const PlaceView&) const = default;
};

// Where a rank is. Its working thread writes it, at the cost of two atomic stores; any thread may
// read it at any time, such as one that watches the rank or reports its error. Every call counts as
// progress: a rank whose count stands still is stuck, or waits for another.
class Place {
 public:
  Place() = default;
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // The rank enters a phase: of this step, or of the step that it is in already.
  void enter(Phase phase, int64_t step);
  void enter(Phase phase);
  // The rank comes to a stage of the model, within its phase.
  void stage(int index);
  // The rank gets on with something that takes long.
  void advance() { progress_.fetch_add(1, std::memory_order_relaxed); }

  PlaceView view() const;

 private:
  // Phase, stage and step in one word, so that a reader never sees halves of two places.
  std::atomic<uint64_t> where_{0};
  std::atomic<int64_t> progress_{0};
};

}  // namespace tessera
