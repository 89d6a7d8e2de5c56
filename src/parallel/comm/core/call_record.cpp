#include "parallel/comm/core/call_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/comm/core/rank_names.h"

namespace tessera {
namespace {

std::string numbered(const CallRecord& call, const RankNames& ranks) {
  return fmt::format("{} as collective #{}", call_text(call, ranks), call.back());
}

}  // namespace

CallRecord call_record(const Operation& op, uint64_t number) {
  return {static_cast<int64_t>(op.kind),
          static_cast<int64_t>(op.dtype),
          static_cast<int64_t>(op.out_dtype),
          op.count,
          op.peer,
          static_cast<int64_t>(op.reduce),
          static_cast<int64_t>(number)};
}

std::string call_text(const CallRecord& call, const RankNames& ranks) {
  Operation op;
  op.kind = static_cast<OperationKind>(call[0]);
  op.dtype = static_cast<at::ScalarType>(call[1]);
  op.out_dtype = static_cast<at::ScalarType>(call[2]);
  op.count = call[3];
  op.peer = static_cast<int>(call[4]);
  op.reduce = static_cast<ReduceOp>(call[5]);
  return op.text(ranks);
}

std::string disagreement(const std::string& group, const std::vector<CallRecord>& calls,
                         const RankNames& ranks) {
  const CallRecord* usual = nullptr;
  for (const CallRecord& call : calls)
    if (2 * std::count(calls.begin(), calls.end(), call) > static_cast<int64_t>(calls.size()))
      usual = &call;
  std::string text;
  for (size_t rank = 0; rank < calls.size(); ++rank)
    if (usual == nullptr || calls[rank] != *usual)
      text += fmt::format("{}{} called {}", text.empty() ? "" : "; ",
                          ranks.text(static_cast<int>(rank)), numbered(calls[rank], ranks));
  if (usual != nullptr) text += fmt::format("; the others called {}", numbered(*usual, ranks));
  return fmt::format(
      "[comm] {}: ranks disagree: {}; all ranks must start the same operations in the same order",
      group, text);
}

}  // namespace tessera
