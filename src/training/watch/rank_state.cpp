#include "training/watch/rank_state.h"

#include <fmt/format.h>

namespace tessera {
namespace {

using nlohmann::json;

json operation_json(const OperationView& op) {
  return json::array(
      {op.number, op.kind, op.count, op.dtype, static_cast<int>(op.state), op.seconds, op.missing});
}

OperationView operation_of(const json& from) {
  OperationView op;
  op.number = from.at(0).get<int64_t>();
  op.kind = from.at(1).get<std::string>();
  op.count = from.at(2).get<int64_t>();
  op.dtype = from.at(3).get<std::string>();
  op.state = static_cast<OperationView::State>(from.at(4).get<int>());
  op.seconds = from.at(5).get<double>();
  op.missing = from.at(6).get<std::vector<int>>();
  return op;
}

json group_json(const GroupView& group) {
  json last = json::array();
  for (const OperationView& op : group.last) last.push_back(operation_json(op));
  return {{"group", group.group},
          {"ranks", group.ranks},
          {"started", group.started},
          {"done", group.done},
          {"last", std::move(last)}};
}

GroupView group_of(const json& from) {
  GroupView group;
  group.group = from.at("group").get<std::string>();
  group.ranks = from.at("ranks").get<std::vector<int>>();
  group.started = from.at("started").get<int64_t>();
  group.done = from.at("done").get<int64_t>();
  for (const auto& op : from.at("last")) group.last.push_back(operation_of(op));
  return group;
}

const char* life_text(RankState::Life life) {
  switch (life) {
    case RankState::Life::kAbsent:
      return "never heard of";
    case RankState::Life::kLive:
      return "connected";
    case RankState::Life::kLost:
      return "lost";
    case RankState::Life::kFailed:
      return "failed";
    case RankState::Life::kLeft:
      return "ended in order";
  }
  return "";
}

const char* state_text(OperationView::State state) {
  return state == OperationView::State::kQueued    ? "queued"
         : state == OperationView::State::kRunning ? "running"
                                                   : "done";
}

std::string group_dump(const GroupView& group) {
  std::string text = fmt::format("  \"{}\" of {}: {} started, {} done\n", group.group,
                                 ranks_text(group.ranks), group.started, group.done);
  for (const OperationView& op : group.last) {
    text += fmt::format("    {} {} ({}, {} elements): {}", op.number, op.kind, op.dtype, op.count,
                        state_text(op.state));
    if (op.seconds > 0.0) text += fmt::format(", {:.3f} s", op.seconds);
    if (!op.missing.empty()) text += ", waits for " + ranks_text(op.missing);
    text += '\n';
  }
  return text;
}

}  // namespace

std::string RankState::name() const {
  std::string inside = host;
  if (dp >= 0) inside += fmt::format("{}dp {}, tp {}", inside.empty() ? "" : ", ", dp, tp);
  return inside.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, inside);
}

json to_json(const RankState& state) {
  json groups = json::array();
  for (const GroupView& group : state.groups) groups.push_back(group_json(group));
  return {{"dp", state.dp},
          {"tp", state.tp},
          {"phase", static_cast<int>(state.place.phase)},
          {"step", state.place.step},
          {"stage", state.place.stage},
          {"progress", state.place.progress},
          {"quiet", state.quiet},
          {"limit", state.limit},
          {"key", state.key},
          {"groups", std::move(groups)}};
}

void from_json(const json& from, RankState& state) {
  const int phase = from.at("phase").get<int>();
  if (phase < 0 || phase > static_cast<int>(Phase::kClose)) return;
  state.dp = from.at("dp").get<int>();
  state.tp = from.at("tp").get<int>();
  state.place.phase = static_cast<Phase>(phase);
  state.place.step = from.at("step").get<int64_t>();
  state.place.stage = from.at("stage").get<int>();
  state.place.progress = from.at("progress").get<int64_t>();
  state.quiet = from.at("quiet").get<double>();
  state.limit = from.at("limit").get<double>();
  state.key = from.at("key").get<std::string>();
  state.groups.clear();
  for (const auto& group : from.at("groups")) state.groups.push_back(group_of(group));
}

std::string dump_text(const std::vector<RankState>& ranks) {
  std::string text;
  for (const RankState& state : ranks) {
    text += fmt::format("{}: {}", state.name(), life_text(state.life));
    if (!state.end.empty()) text += fmt::format(" ({})", state.end);
    if (state.life != RankState::Life::kAbsent) {
      text += fmt::format("; {}, progress {}, none for {:.1f} s", state.place.text(),
                          state.place.progress, state.quiet);
      if (state.limit > 0.0) text += fmt::format(" of {:.0f} ({})", state.limit, state.key);
    }
    text += fmt::format("; last word {:.1f} s ago\n", state.silent);
    for (const GroupView& group : state.groups) text += group_dump(group);
  }
  return text;
}

std::string operation_text(const GroupView& group, const OperationView& operation) {
  if (operation.count == 0)
    return fmt::format("{} {} of \"{}\"", operation.kind, operation.number, group.group);
  return fmt::format("{} {} ({}, {} elements) of \"{}\"", operation.kind, operation.number,
                     operation.dtype, operation.count, group.group);
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  const size_t last = ranks.size() - 1;
  if (last >= 2 && ranks[last] - ranks[0] == static_cast<int>(last))
    return fmt::format("ranks {} to {}", ranks[0], ranks[last]);
  std::string text = "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i == last ? " and " : ", ", ranks[i]);
  return text;
}

}  // namespace tessera
