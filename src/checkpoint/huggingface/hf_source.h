#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "checkpoint/format/state_source.h"
#include "checkpoint/huggingface/hf_plan.h"

namespace tessera {

// The weights of a Hugging Face folder as a source to load from, without a copy of them in our own
// format. No MPI, no model, bounded memory.
class HuggingFaceSource : public StateSource {
 public:
  // Reads config.json, index and headers, no data. Errors and notes as plan_hugging_face(); also
  // UserError if a file that comes along (hf_files.h) cannot be opened.
  HuggingFaceSource(const std::filesystem::path& dir, nlohmann::json config, const HfModel& model);

  const std::filesystem::path& path() const { return plan_.folder.path; }
  const nlohmann::json& config() const { return plan_.folder.config; }
  // Our tensors that the folder gives, in the order of its files.
  const std::vector<HfPart>& parts() const { return plan_.parts; }
  // For the user, a line each.
  const std::vector<std::string>& notes() const { return plan_.folder.notes; }

  // Tells these weights from others, wherever the folder lies: a digest of config.json, of the
  // headers, and of a few samples of each file's data, since the headers of a model that was tuned
  // are those of the one before. Reads the samples.
  std::string id() const;

  // UserError if a tied head that lies beside its embedding differs from it in part `part` of
  // `parts` equal ones: ranks share the reading.
  void check_tied_head(int part, int parts) const;

  // Reads only what the piece needs, but for gaps that are too small to skip. UserError also for
  // any state but the parameters themselves.
  void read(const Piece& piece) override;

 private:
  // Elements that lie one after the other in a stored tensor: `numel` of them from `at` on. In the
  // piece the first has the place `to`, and each further one is `stride` places on.
  struct Run {
    int64_t at = 0;
    int64_t numel = 0;
    int64_t to = 0;
    int64_t stride = 1;
  };
  static std::vector<Run> runs_of(const HfPart& part, const BoxSlice& slice);
  int64_t read_runs(const HfPart& part, const std::vector<Run>& runs, const Piece& piece);
  const File& open(size_t file);

  HfPlan plan_;
  std::map<std::string, const HfPart*> by_name_;
  File file_;  // the one that was read last
  size_t file_index_ = 0;
};

}  // namespace tessera
