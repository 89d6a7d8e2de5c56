#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/core/operation.h"

namespace tessera {

// A call of a collective as numbers, so that it can travel and be compared. `number`: 1, 2, ... by
// a count that leaves point-to-point operations out.
using CallRecord = std::array<int64_t, 7>;

CallRecord call_record(const Operation& op, uint64_t number);

// The call as Operation::text() has it.
std::string call_text(const CallRecord& call, const RankNames& ranks);

// The Error's text if the ranks of a group have made different calls; the same on every rank. Where
// more than half have made one call, it names those that have not, else all. `calls`: by rank.
std::string disagreement(const std::string& group, const std::vector<CallRecord>& calls,
                         const RankNames& ranks);

}  // namespace tessera
