#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/process/place.h"
#include "parallel/comm/core/comm_record.h"

namespace tessera {

// What is known of a rank.
struct RankState {
  enum class Life {
    kAbsent,  // nothing was ever heard of it
    kLive,    // its connection is open
    kLost,    // its connection has ended without a word
    kFailed,  // it has said that an error ends it
    kLeft     // it has ended in order
  };

  int rank = 0;           // world rank
  std::string host = {};  // empty: not known
  int dp = -1, tp = -1;   // coordinates in the mesh; -1: not known yet
  Life life = Life::kAbsent;
  // kLost: why the connection ended, where the system says it; kFailed: the error.
  std::string end = {};
  int exit_code = 1;    // kFailed: the one that goes with the error
  double silent = 0.0;  // seconds since its last word; kLost, kFailed: since its end
  PlaceView place = {};
  double quiet = 0.0;    // seconds without progress, as the rank itself counts them
  double limit = 0.0;    // so many are allowed where it is; 0: any number
  std::string key = {};  // the configuration's key of this limit, such as "watchdog.step"
  std::vector<GroupView> groups = {};

  // "rank 5 (n2, dp 1, tp 1)"
  std::string name() const;
};

// What a rank says of itself in a heartbeat, and back. from_json() takes what it knows into
// `state`, and throws nlohmann's exceptions for JSON that is not of this form.
nlohmann::json to_json(const RankState& state);
void from_json(const nlohmann::json& from, RankState& state);

// Everything that is known, for a file: a paragraph for each rank.
std::string dump_text(const std::vector<RankState>& ranks);

// "all-gather 1042 (bf16, 4096 elements) of "gather"".
std::string operation_text(const GroupView& group, const OperationView& operation);

// "rank 3", "ranks 0, 1 and 2", "ranks 4 to 7".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace tessera
