#pragma once

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
// Killed before the commit, the next start goes on from an older step, for which a note of step N
// says nothing. Killed after the line, the note is wrong, and the line says so.
//
// All ranks have one and know alike whether a validation is owed; the file is rank 0's.
class OwedValidation {
 public:
  // `root`: this rank keeps the file.
  OwedValidation(const std::filesystem::path& run_dir, bool root);

  // What the note says of `step`, the one that a run goes on from. A note of another step is of a
  // save that was killed, and goes. `can_validate`: there is data to make it up with; else `warn`
  // is told. UserError for a note that cannot be read. Collective.
  void find(int64_t step, bool can_validate, Communicator& world,
            const std::function<void(const std::string&)>& warn);

  bool owed() const { return owed_; }
  // Of the step that is done; not written down before note().
  void owe(bool owed) { owed_ = owed; }
  // Before `step` is saved: writes the note, if its validation is owed.
  void note(int64_t step);
  // The validation is made and its line on the disk.
  void clear();

 private:
  bool is_owed(int64_t step) const;
  std::optional<int64_t> noted_step() const;
  void remove_note();

  std::filesystem::path path_, metrics_;
  bool root_;
  bool owed_ = false;
};

}  // namespace tessera
