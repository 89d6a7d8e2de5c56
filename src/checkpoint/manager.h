#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/pieces.h"
#include "checkpoint/run_folder.h"
#include "parallel/comm/communicator.h"

namespace tessera {

// Saves, finds and retires the checkpoints of one run folder. All methods are collective over
// `world`.
class CheckpointManager {
 public:
  // dir: RUN/checkpoints. keep: how many committed checkpoints stay (0: all). `warn` takes one
  // line.
  CheckpointManager(std::filesystem::path dir, int keep, Communicator& world,
                    std::function<void(const std::string&)> warn);

  // Commit order: step-N.partial/ is made anew, every rank writes and fsyncs
  // rank-RRRRR.safetensors, all agree, rank 0 writes the manifest last, fsyncs the folder, renames
  // it to step-N, fsyncs the parent, replaces `latest` by rename, and deletes the oldest committed
  // ones beyond `keep`. `manifest` comes with step, samples, tokens, seed, states, tensors, model,
  // config and mesh. If any rank fails, all ranks throw, .partial is left, and older checkpoints
  // are untouched. Returns the committed folder. Saving a step that is committed already is a
  // no-op.
  std::filesystem::path save(Manifest manifest, const std::vector<Piece>& pieces);

  // The newest checkpoint that is complete and whole (every checksum verified), chosen by rank 0
  // and agreed by all. One that is broken is warned of by name, moved to step-N.broken, and the
  // next older one is taken. nullopt when there is none at all; UserError when there are some but
  // none whole.
  std::optional<std::filesystem::path> find_latest();

  // True if step-N is committed here.
  bool has(int64_t step) const;

  // For tests: calls `probe` with a name at every point of a save where being killed is a case of
  // its own ("partial made", "file written", "all agreed", "manifest written", ...).
  void set_probe(std::function<void(const char* point)> probe) { probe_ = std::move(probe); }

 private:
  ManifestFile write_rank_file(const std::filesystem::path& partial,
                               const std::vector<Piece>& pieces);
  void commit(Manifest& manifest, const std::filesystem::path& partial,
              const std::filesystem::path& target);
  void tidy(int64_t step);

  std::filesystem::path dir_;
  int keep_;
  Communicator& world_;
  std::function<void(const std::string&)> warn_;
  std::function<void(const char* point)> probe_ = [](const char*) {};
};

}  // namespace tessera
