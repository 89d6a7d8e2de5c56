#include "training/watch/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "training/watch/wait_graph.h"

namespace tessera {
namespace {

using Life = RankState::Life;
using Ranks = std::vector<const RankState*>;

constexpr size_t kMostNamed = 4;  // ranks that get a line of their own

Ranks ranks_where(const std::vector<RankState>& all,
                  const std::function<bool(const RankState&)>& is) {
  Ranks found;
  for (const RankState& state : all)
    if (is(state)) found.push_back(&state);
  return found;
}

std::vector<int> numbers(const Ranks& ranks) {
  std::vector<int> found;
  for (const RankState* state : ranks) found.push_back(state->rank);
  return found;
}

bool is_over(const RankState& state) {
  return state.life == Life::kLive && state.limit > 0.0 && state.quiet >= state.limit;
}

bool is_before_mpi_runs(const RankState& state) {
  return state.place.phase <= Phase::kConnect;
}

// "the other 7 wait", "the other one waits", "2 of the others wait".
std::string others_wait(size_t waiting, size_t others) {
  if (waiting == others)
    return others == 1 ? "the other one waits" : fmt::format("the other {} wait", others);
  return fmt::format("{} of the other {} wait{}", waiting, others, waiting == 1 ? "s" : "");
}

std::string limit_text(const RankState& state) {
  return fmt::format("it has made no progress for {:.0f} s; {:.0f} are allowed ({})", state.quiet,
                     state.limit, state.key);
}

Verdict verdict_on(Verdict::Reason reason, const Ranks& culprits, std::string text) {
  Verdict verdict;
  verdict.reason = reason;
  verdict.ranks = numbers(culprits);
  if (!culprits.empty()) {
    verdict.host = culprits[0]->host;
    verdict.step = culprits[0]->place.step;
  }
  verdict.text = std::move(text);
  return verdict;
}

// One line for each of the first few ranks.
std::string lines(const Ranks& ranks, const std::function<std::string(const RankState&)>& line) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i)
    text += (i > 0 ? "\n" : "") + line(*ranks[i]);
  if (ranks.size() > kMostNamed)
    text += fmt::format("\nand so are {} more ranks", ranks.size() - kMostNamed);
  return text;
}

// Hosts on which every rank of the run is one of `ranks`, with several ranks each.
std::map<std::string, Ranks> whole_hosts(const std::vector<RankState>& all, const Ranks& ranks) {
  std::map<std::string, Ranks> hosts;
  std::map<std::string, size_t> sizes;
  for (const RankState& state : all) ++sizes[state.host];
  for (const RankState* state : ranks) hosts[state->host].push_back(state);
  std::erase_if(hosts, [&](const auto& host) {
    return host.first.empty() || host.second.size() < 2 ||
           host.second.size() != sizes[host.first] || sizes[host.first] == all.size();
  });
  return hosts;
}

// What is told of `ranks`: a line for each host that is meant as a whole, then for single ranks.
std::string by_host(const std::vector<RankState>& all, const Ranks& ranks,
                    const std::function<std::string(const std::string&, const Ranks&)>& of_host,
                    const std::function<std::string(const RankState&)>& of_rank) {
  const auto hosts = whole_hosts(all, ranks);
  std::string text;
  Ranks single;
  for (const auto& [host, of_it] : hosts) text += (text.empty() ? "" : "\n") + of_host(host, of_it);
  for (const RankState* state : ranks)
    if (!hosts.contains(state->host)) single.push_back(state);
  if (!single.empty()) text += (text.empty() ? "" : "\n") + lines(single, of_rank);
  return text;
}

// ---- Ranks that have told an error

// Whether an error only says that another rank has failed, or does not come.
bool is_consequence(const std::string& error) {
  return error.starts_with("[comm]");
}

bool is_abort(const std::string& error) {
  return is_consequence(error) && error.find(" was aborted: ") != std::string::npos;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// `ranks`: of the world.
std::optional<Verdict> judge_failed(const Ranks& failed, size_t ranks, double settle) {
  if (failed.empty()) return std::nullopt;
  const auto longest = [](const RankState* a, const RankState* b) { return a->silent < b->silent; };
  if ((*std::max_element(failed.begin(), failed.end(), longest))->silent < settle)
    return std::nullopt;
  const RankState& first = *failed[0];
  const bool shared =
      failed.size() == ranks && std::all_of(failed.begin(), failed.end(), [&](const auto* other) {
        return first_line(other->end) == first_line(first.end);
      });
  std::string text =
      shared ? first.end : fmt::format("{}, {}: {}", first.name(), first.place.text(), first.end);
  for (const RankState* other : failed)
    if (first_line(other->end) != first_line(first.end) && !is_consequence(other->end))
      text += fmt::format("\nalso {}: {}", other->name(), first_line(other->end));
  Verdict verdict = verdict_on(Verdict::Reason::kError, shared ? Ranks{} : Ranks{failed[0]}, text);
  verdict.exit_code = first.exit_code;
  return verdict;
}

// ---- Ranks that are gone or stopped

std::string waiting_text(const WaitGraph& graph, const RankState& state, size_t index,
                         size_t others) {
  const Wait* wait = graph.awaits(index);
  if (wait == nullptr || state.life != Life::kLive) return "";
  return fmt::format("; {} for it in {}", others_wait(graph.together(*wait).size(), others),
                     operation_text(wait->group, wait->operation));
}

std::optional<Verdict> judge_lost(const std::vector<RankState>& all, const VerdictRules& rules) {
  const Ranks lost = ranks_where(all, [](const auto& state) { return state.life == Life::kLost; });
  if (std::none_of(lost.begin(), lost.end(),
                   [&](const RankState* state) { return state->silent >= rules.settle; }))
    return std::nullopt;
  const std::string text = by_host(
      all, lost,
      [](const std::string& host, const Ranks& of_it) {
        const std::string why = of_it[0]->end;
        return fmt::format("node {} is gone, with {}: {}; {} was last heard of {}", host,
                           ranks_text(numbers(of_it)),
                           why.empty() ? "their processes ended without a word"
                                       : fmt::format("nothing gets through to it ({})", why),
                           of_it[0]->name(), of_it[0]->place.text());
      },
      [](const RankState& state) {
        if (!state.end.empty())
          return fmt::format(
              "{} is out of reach: nothing gets through to its machine ({}); last heard of {}",
              state.name(), state.end, state.place.text());
        return fmt::format(
            "{} is gone: its process ended without a word (killed? out of memory? the log of its "
            "machine may say); last heard of {}",
            state.name(), state.place.text());
      });
  return verdict_on(Verdict::Reason::kLostRank, lost, text);
}

std::optional<Verdict> judge_stopped(const std::vector<RankState>& all, const VerdictRules& rules) {
  const Ranks stopped = ranks_where(all, [&](const RankState& state) {
    return state.life == Life::kLive && state.limit > 0.0 &&
           state.silent >= std::clamp(state.limit, rules.least_silence, rules.silence);
  });
  if (stopped.empty()) return std::nullopt;
  const WaitGraph graph(all);
  const std::string text = by_host(
      all, stopped,
      [](const std::string& host, const Ranks& of_it) {
        return fmt::format(
            "node {} is stopped or cut off: nothing was heard of its {} for {:.0f} s", host,
            ranks_text(numbers(of_it)), of_it[0]->silent);
      },
      [&](const RankState& state) {
        return fmt::format(
            "{} is stopped: nothing was heard of it for {:.0f} s, though its connection is open "
            "(SIGSTOP? a debugger?); last heard of {}{}",
            state.name(), state.silent, state.place.text(),
            waiting_text(graph, state, static_cast<size_t>(&state - all.data()), all.size() - 1));
      });
  return verdict_on(Verdict::Reason::kHang, stopped, text);
}

// ---- The start

std::optional<Verdict> judge_start(const std::vector<RankState>& all) {
  const Ranks starting = ranks_where(all, [](const RankState& state) {
    return state.life == Life::kLive && is_before_mpi_runs(state);
  });
  if (starting.empty()) return std::nullopt;
  // A rank that MPI has, but that found no way to the watchdog, is not missing: it is not watched.
  const Ranks absent = ranks_where(all, [](const RankState& state) {
    return state.life == Life::kAbsent && state.limit > 0.0 && state.quiet >= state.limit;
  });
  const bool all_start = starting.size() == ranks_where(all, [](const RankState& state) {
                                              return state.life == Life::kLive;
                                            }).size();
  if (!absent.empty() && all_start) {
    std::string text = by_host(
        all, absent,
        [](const std::string& host, const Ranks& of_it) {
          return fmt::format("node {}: none of its {} has started", host,
                             ranks_text(numbers(of_it)));
        },
        [](const RankState& state) {
          return fmt::format("{} has not started: nothing was ever heard of it", state.name());
        });
    text += fmt::format(
        "\nafter {:.0f} s ({}) {} for {} in the start of MPI: does the program start there, and "
        "does it see the same run folder?",
        absent[0]->quiet, absent[0]->key, others_wait(starting.size(), all.size() - absent.size()),
        absent.size() == 1 ? "it" : "them");
    return verdict_on(Verdict::Reason::kHang, absent, text);
  }
  const Ranks connecting = ranks_where(all, [](const RankState& state) {
    return is_over(state) && state.place.phase == Phase::kConnect;
  });
  if (connecting.size() != all.size()) return std::nullopt;
  return verdict_on(
      Verdict::Reason::kHang, {},
      fmt::format(
          "all {} ranks are in the start of MPI for {:.0f} s ({}), and none is missing: MPI "
          "does not get through from one to another. Nodes must share the network interfaces "
          "that MPI uses, and no two may have one address on them (docker0, virbr0): "
          "OMPI_MCA_btl_tcp_if_include, UCX_NET_DEVICES",
          all.size(), all[0].quiet, all[0].key));
}

// ---- Hangs

// The order in which ranks come to places.
std::tuple<int64_t, Phase, int> order_of(const PlaceView& place) {
  return {place.step, place.phase, place.phase == Phase::kBackward ? -place.stage : place.stage};
}

std::string stuck_text(const RankState& state, const WaitGraph& graph, size_t index,
                       size_t others) {
  std::string text = fmt::format("{} is {}", state.name(), state.place.text());
  if (const Wait* wait = graph.awaits(index))
    text +=
        fmt::format(" and did not enter {}; {} in it", operation_text(wait->group, wait->operation),
                    others_wait(graph.together(*wait).size(), others));
  return text + "\n" + limit_text(state);
}

// Ranks that are over their limit in work of their own.
std::optional<Verdict> judge_stuck(const std::vector<RankState>& all, const WaitGraph& graph) {
  std::vector<size_t> stuck;
  for (size_t i = 0; i < all.size(); ++i)
    if (is_over(all[i]) && graph.wait_of(i) == nullptr && !graph.common(i)) stuck.push_back(i);
  // While one has not come to the start of MPI, the others wait there; and where nothing is known
  // of what ranks wait in, those that are furthest behind are stuck.
  if (stuck.size() > 1) {
    const auto behind = [&](size_t a, size_t b) {
      return order_of(all[a].place) < order_of(all[b].place);
    };
    const size_t last = *std::min_element(stuck.begin(), stuck.end(), behind);
    std::erase_if(stuck, [&](size_t i) {
      return order_of(all[i].place) != order_of(all[last].place) && graph.awaits(i) == nullptr;
    });
  }
  if (stuck.empty()) return std::nullopt;
  Ranks culprits;
  for (const size_t i : stuck) culprits.push_back(&all[i]);
  return verdict_on(Verdict::Reason::kHang, culprits, lines(culprits, [&](const RankState& state) {
                      return stuck_text(state, graph, static_cast<size_t>(&state - all.data()),
                                        all.size() - stuck.size());
                    }));
}

// Different operations under one number: the fewer ranks are the odd ones.
Verdict judge_mismatch(const std::vector<RankState>& all, const Mismatch& found) {
  std::map<std::string, Ranks> by_operation;
  std::map<std::string, std::string> texts;
  for (const RankState& state : all) {
    if (state.life != Life::kLive) continue;
    for (const GroupView& group : state.groups) {
      if (group.group != found.group.group || group.ranks != found.group.ranks) continue;
      for (const OperationView& op : group.last)
        if (op.number == found.operation.number)
          by_operation[operation_text(group, op)].push_back(&state);
      break;
    }
  }
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto odd = std::min_element(by_operation.begin(), by_operation.end(), fewer);
  const bool tie = std::count_if(by_operation.begin(), by_operation.end(), [&](const auto& one) {
                     return one.second.size() == odd->second.size();
                   }) > 1;
  std::string text;
  if (!tie)
    text = lines(odd->second, [&](const RankState& state) {
      return fmt::format("{} is {} and started {} there", state.name(), state.place.text(),
                         odd->first);
    });
  for (const auto& [operation, ranks] : by_operation) {
    if (!tie && operation == odd->first) continue;
    text += fmt::format("{}{} started {}", text.empty() ? "" : "\n", ranks_text(numbers(ranks)),
                        operation);
  }
  text += "\nranks must start the same operations in the same order";
  return verdict_on(Verdict::Reason::kHang, tie ? Ranks{} : odd->second, text);
}

// Everybody waits, each for somebody: ranks have taken different ways.
Verdict judge_circle(const std::vector<RankState>& all, const WaitGraph& graph) {
  const Wait* common = nullptr;
  size_t most = 0;
  bool tie = false;
  for (const Wait& wait : graph.waits()) {
    const size_t count = graph.together(wait).size();
    const bool same = common != nullptr && operation_text(common->group, common->operation) ==
                                               operation_text(wait.group, wait.operation);
    if (same) continue;
    if (count < most) continue;
    tie = count == most;
    most = count;
    if (!tie) common = &wait;
  }
  Ranks odd;
  for (const Wait& wait : graph.waits())
    if (std::binary_search(common->missing.begin(), common->missing.end(), all[wait.rank].rank))
      odd.push_back(&all[wait.rank]);
  const std::string joint = operation_text(common->group, common->operation);
  std::string text = lines(odd, [&](const RankState& state) {
    const Wait* wait = graph.wait_of(static_cast<size_t>(&state - all.data()));
    return fmt::format("{} is {}, waits in {} and did not enter {}; {} in it", state.name(),
                       state.place.text(), operation_text(wait->group, wait->operation), joint,
                       others_wait(most, all.size() - odd.size()));
  });
  if (odd.empty())  // those that are missing have left the run
    text = fmt::format("{} in {}, which {} did not enter", others_wait(most, all.size()), joint,
                       ranks_text(common->missing));
  text += "\nranks must start the same operations in the same order";
  return verdict_on(Verdict::Reason::kHang, tie ? Ranks{} : odd, text);
}

std::optional<Verdict> judge_hang(const std::vector<RankState>& all, const VerdictRules& rules) {
  size_t over = all.size();
  double least = 0.0;
  for (size_t i = all.size(); i-- > 0;) {
    if (is_over(all[i]) && all[i].quiet >= all[i].limit + rules.skew) over = i;
    if (all[i].life == Life::kLive && all[i].limit > 0.0)
      least = least == 0.0 ? all[i].limit : std::min(least, all[i].limit);
  }
  if (over == all.size()) return std::nullopt;
  const WaitGraph graph(all);  // of many ranks it takes time: only now
  const auto mismatch = graph.mismatch();
  if (mismatch && (is_over(all[mismatch->rank]) || is_over(all[mismatch->other])))
    return judge_mismatch(all, *mismatch);
  if (auto verdict = judge_stuck(all, graph)) return verdict;
  // The rest wait for each other, unless one of them still works.
  bool circle = true;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].life != Life::kLive) continue;
    if (all[i].quiet < least) return std::nullopt;
    circle = circle && graph.wait_of(i) != nullptr;
  }
  if (circle) return judge_circle(all, graph);
  const auto common = graph.common(over);
  if (!common || graph.wait_of(over) != nullptr) return std::nullopt;
  return verdict_on(Verdict::Reason::kHang, {},
                    fmt::format("all ranks of {} are in it, and it does not end: what carries it "
                                "between them is stuck\n{}: {}",
                                operation_text(common->group, common->operation), all[over].name(),
                                limit_text(all[over])));
}

}  // namespace

const char* reason_name(Verdict::Reason reason) {
  switch (reason) {
    case Verdict::Reason::kError:
      return "error";
    case Verdict::Reason::kLostRank:
      return "lost_rank";
    case Verdict::Reason::kHang:
      break;
  }
  return "hang";
}

std::optional<Verdict> judge(const std::vector<RankState>& ranks, const VerdictRules& rules) {
  const auto failed = [&](const std::function<bool(const std::string&)>& is) {
    return ranks_where(ranks, [&](const RankState& state) {
      return state.life == Life::kFailed && is(state.end);
    });
  };
  if (const Ranks causes = failed(std::not_fn(is_consequence)); !causes.empty())
    return judge_failed(causes, ranks.size(), rules.settle);
  if (auto verdict = judge_lost(ranks, rules)) return verdict;
  if (auto verdict = judge_stopped(ranks, rules)) return verdict;
  const Ranks gave_up = failed([](const std::string& error) { return !is_abort(error); });
  if (auto verdict = judge_failed(gave_up, ranks.size(), 2 * rules.settle)) return verdict;
  if (auto verdict = judge_failed(failed(is_abort), ranks.size(), rules.cause)) return verdict;
  if (auto verdict = judge_start(ranks)) return verdict;
  return judge_hang(ranks, rules);
}

}  // namespace tessera
