#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tessera {

// RUN/owed-validation.json: the step whose checkpoint may stand while the line of its validation is
// not in metrics.jsonl yet. A save comes before the validation of its step, so that a kill during
// it loses no training; this note, written before the save and removed after the line, is how the
// next start knows to make the validation up:
//
//   note of step N | step-N committed | validation, its line, on the disk | no note
//
// Killed before the commit, the next start goes on from an older step, for which a note of step N
// says nothing. Killed after the line, the note is wrong, and the line says so. Rank 0's.
class OwedValidation {
 public:
  OwedValidation(const std::filesystem::path& run_dir);

  // Whether validation of `step`, the one a run goes on from, is to be made up. UserError for a
  // note that cannot be read.
  bool is_owed(int64_t step) const;

  void note(int64_t step);
  void clear();  // does nothing if there is no note

 private:
  std::optional<int64_t> noted_step() const;

  std::filesystem::path path_, metrics_;
};

}  // namespace tessera
