#include "checkpoint/tools/diff.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <ostream>

#include "base/process/share_out.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/stored_checkpoint.h"
#include "checkpoint/tools/side_by_side.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;

double difference_of(double a, double b) {
  if (a == b) return 0;  // infinities too
  const double difference = std::abs(a - b);
  if (!std::isnan(difference)) return difference;
  return std::isnan(a) && std::isnan(b) ? 0 : std::numeric_limits<double>::infinity();
}

// Lists the states that both have of a tensor in `states`, and the others by name.
void match_states(const StoredCheckpoint& a, const TensorInfo& in_a, const StoredCheckpoint& b,
                  const TensorInfo& in_b, CheckpointDifference& difference) {
  const std::vector<std::string>& of_a = a.manifest().states_of(in_a);
  const std::vector<std::string>& of_b = b.manifest().states_of(in_b);
  const auto has = [](const std::vector<std::string>& states, const std::string& state) {
    return std::find(states.begin(), states.end(), state) != states.end();
  };
  for (const std::string& state : of_a) {
    if (!has(of_b, state)) {
      difference.states_only_a.push_back(piece_key(in_a.name, state));
      continue;
    }
    if (in_a.shape != in_b.shape) continue;
    difference.states.push_back({.tensor = in_a.name,
                                 .state = state,
                                 .a_dtype = a.dtype(in_a.name, state),
                                 .b_dtype = b.dtype(in_a.name, state),
                                 .numel = whole_box(in_a.shape).numel()});
  }
  for (const std::string& state : of_b)
    if (!has(of_a, state)) difference.states_only_b.push_back(piece_key(in_b.name, state));
}

void compare_values(SideBySide& reading, const TensorInfo& tensor, StateDifference& result,
                    ByteProgress& progress) {
  double sum = 0;
  reading.read(tensor, result.state, [&](const std::vector<const double*>& values, int64_t numel) {
    for (int64_t i = 0; i < numel; ++i) {
      const double difference = difference_of(values[0][i], values[1][i]);
      if (difference == 0) continue;
      ++result.differing;
      result.max = std::max(result.max, difference);
      sum += difference;
    }
    progress.add(numel * dtype_size(result.a_dtype));
  });
  if (result.numel > 0) result.mean = sum / static_cast<double>(result.numel);
}

ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

}  // namespace

bool CheckpointDifference::equal() const {
  return tensors.none() && states_only_a.empty() && states_only_b.empty() &&
         std::all_of(states.begin(), states.end(),
                     [](const StateDifference& state) { return state.equal(); });
}

CheckpointDifference diff_steps(const std::filesystem::path& a, const std::filesystem::path& b,
                                const ToolOptions& tool) {
  CheckpointDifference difference{a, b, {}, {}, {}, {}};
  const std::vector both{StoredCheckpoint::open(a), StoredCheckpoint::open(b)};
  difference.tensors = compare_tensors(both[0]->manifest(), both[1]->manifest());
  std::map<std::string, const TensorInfo*> in_b;
  for (const TensorInfo& tensor : both[1]->manifest().tensors) in_b[tensor.name] = &tensor;
  for (const TensorInfo& tensor : both[0]->manifest().tensors)
    if (const auto other = in_b.find(tensor.name); other != in_b.end())
      match_states(*both[0], tensor, *both[1], *other->second, difference);

  int64_t bytes = 0;
  for (const StateDifference& state : difference.states)
    bytes += state.numel * dtype_size(state.a_dtype);
  ByteProgress progress(bytes, tool.progress);
  share_out(difference.states.size(), tool.threads, [&]() -> Worker {
    const auto reading = std::make_shared<SideBySide>(both);
    return [&, reading](size_t i) {
      StateDifference& state = difference.states[i];
      compare_values(*reading, both[0]->tensor(state.tensor), state, progress);
    };
  });
  return difference;
}

void print_difference(const CheckpointDifference& difference, std::ostream& out) {
  const auto print_names = [&](const std::vector<std::string>& names,
                               const std::filesystem::path& where) {
    for (const std::string& name : names)
      out << fmt::format("only in {}: {}\n", where.string(), name);
  };
  print_names(difference.tensors.only_a, difference.a);
  print_names(difference.tensors.only_b, difference.b);
  print_names(difference.states_only_a, difference.a);
  print_names(difference.states_only_b, difference.b);
  for (const TensorsDiffer::Shape& shape : difference.tensors.shapes)
    out << fmt::format("shapes differ: {}\n", shape.text());

  size_t equal = 0, width = 6;
  for (const StateDifference& state : difference.states)
    if (!state.equal()) width = std::max(width, piece_key(state.tensor, state.state).size());
  for (const StateDifference& state : difference.states) {
    if (state.equal()) {
      ++equal;
      continue;
    }
    out << fmt::format("{:<{}}  max {:<12.6g} mean {:<12.6g} {} of {} elements differ",
                       piece_key(state.tensor, state.state), width, state.max, state.mean,
                       state.differing, state.numel);
    if (state.a_dtype != state.b_dtype)
      out << fmt::format("; stored as {} and {}", dtype_name(state.a_dtype),
                         dtype_name(state.b_dtype));
    out << "\n";
  }
  out << fmt::format("{} of {} states that both have are equal\n", equal, difference.states.size());
}

ordered_json difference_json(const CheckpointDifference& difference) {
  ordered_json shapes = ordered_json::array(), states = ordered_json::array();
  for (const TensorsDiffer::Shape& shape : difference.tensors.shapes)
    shapes.push_back({{"tensor", shape.tensor}, {"a", shape.a}, {"b", shape.b}});
  for (const StateDifference& state : difference.states)
    states.push_back({{"tensor", state.tensor},
                      {"state", state.state},
                      {"elements", state.numel},
                      {"differing", state.differing},
                      {"max", finite_or_null(state.max)},
                      {"mean", finite_or_null(state.mean)},
                      {"a_dtype", dtype_name(state.a_dtype)},
                      {"b_dtype", dtype_name(state.b_dtype)}});
  return {{"a", difference.a.string()},
          {"b", difference.b.string()},
          {"equal", difference.equal()},
          {"tensors_only_a", difference.tensors.only_a},
          {"tensors_only_b", difference.tensors.only_b},
          {"states_only_a", difference.states_only_a},
          {"states_only_b", difference.states_only_b},
          {"shapes", shapes},
          {"states", states}};
}

}  // namespace tessera
