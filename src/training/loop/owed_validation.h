#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "parallel/comm/core/communicator.h"

namespace tessera {

// RUN/owed-validation.json: the step whose checkpoint may stand while the line of its validation is
// not in metrics.jsonl yet. A save comes before the validation of its step, so that a kill during
// it loses no training; this note, written before the save and removed after the line, is how the
// next start knows to make the validation up:
//
//   note of step N | step-N committed | validation, its line, on the disk | no note
//
// If the run is killed before the commit, the next start goes on from an older step and drops the
// note, which is of step N. If it is killed after the line, the next start finds the line and drops
// the note as well.
//
// Every rank has one of these objects, and all agree on whether a validation is owed; only rank 0
// reads and writes the file.
class OwedValidation {
 public:
  // `root`: whether this rank reads and writes the file.
  OwedValidation(const std::filesystem::path& run_dir, bool root);

  // Finds out whether the validation of `step`, from which the run goes on, is owed. Removes a note
  // that does not hold: one of another step (left by a save that was killed), or one whose
  // validation was made. `can_validate`: there is data to make the validation up with; if not,
  // nothing is owed and `warn` is called. UserError for a note that cannot be read. Collective.
  void find(int64_t step, bool can_validate, Communicator& world,
            const std::function<void(const std::string&)>& warn);

  bool owed() const { return owed_; }
  // Says whether the validation of the step just done is owed. Only note() writes that to the file.
  void owe(bool owed) { owed_ = owed; }
  // Before `step` is committed: writes the note, if its validation is owed. Also from another
  // thread, while the validation is made.
  void note(int64_t step);
  // The validation is made and its line on the disk.
  void clear();

 private:
  bool is_owed(int64_t step) const;
  std::optional<int64_t> noted_step() const;
  void remove_note();

  std::filesystem::path path_, metrics_;
  bool root_;
  std::atomic<bool> owed_ = false;
};

}  // namespace tessera
