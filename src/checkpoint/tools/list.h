#pragma once

#include <ctime>
#include <filesystem>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// One entry of RUN/checkpoints.
struct ListedStep {
  std::string name;
  int64_t step = 0;
  // whole: the manifest is sound, and the files are there with their sizes (what they hold is not
  //   read: verify.h); damaged: they are not, or the manifest is not
  // broken: set aside by a resume; partial, deleting: a save, or a removal, that is at work or was
  //   killed
  // unreadable: it cannot be found out
  std::string state;
  std::string why;          // of damaged and unreadable
  std::time_t changed = 0;  // when it was committed; of one without a manifest, when it was changed
  int64_t bytes = 0;        // of all its files
  int64_t files = 0;        // of tensors, as the manifest names them
  nlohmann::json mesh;      // as the manifest has it; null: unknown
  std::optional<double> loss;  // of the validation after the save
};

struct StepList {
  std::filesystem::path folder;    // RUN/checkpoints
  std::vector<ListedStep> steps;   // rising
  std::optional<int64_t> newest;   // the last step that is whole
  std::vector<std::string> notes;  // for the user, a line each
};

// `run`: a run folder, or its `checkpoints`. The losses are those of checkpoints/validation.json,
// if there is one. UserError if `run` is neither.
StepList list_steps(const std::filesystem::path& run);

void print_steps(const StepList& list, std::ostream& out);
nlohmann::ordered_json steps_json(const StepList& list);

}  // namespace tessera
