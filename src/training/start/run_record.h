#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "config/rules/resume.h"
#include "config/save.h"

namespace tessera {

// What the checkpoints of a run say of its past (Manifest::run).
struct RunRecord {
  // A checkpoint that a configuration named as the start: checkpoint.resume of every state, or
  // checkpoint.init_from of the weights alone. By its identity, since folders move and are copied.
  struct Start {
    std::string key;              // "checkpoint.resume" or "checkpoint.init_from"
    std::string manifest;         // Manifest::id; of a Hugging Face folder HuggingFaceSource::id()
    std::optional<int64_t> step;  // nullopt: a Hugging Face folder, whose weights have none
  };
  std::vector<Start> starts;  // in the order in which they happened
  // Keys that a resume has changed though they decide the mathematics.
  struct Change {
    int64_t step = 0;  // of the checkpoint that was resumed
    ConfigChange change;
  };
  std::vector<Change> changes;

  // Whether the run began at the checkpoint with the id `manifest`, named by `key`, or at a
  // checkpoint of a run that did.
  bool began_at(const std::string& key, const std::string& manifest) const;
};

// nullopt: the checkpoint was written by a program that did not record it. UserError for what
// to_json() does not write.
std::optional<RunRecord> run_record_of(const Manifest& manifest);
nlohmann::json to_json(const RunRecord& record);

}  // namespace tessera
