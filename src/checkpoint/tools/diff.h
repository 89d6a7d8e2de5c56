#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/store/tool_options.h"
#include "checkpoint/tools/compare_tensors.h"

namespace tessera {

// A state of a tensor that both checkpoints have, in one shape.
struct StateDifference {
  std::string tensor, state;
  Dtype a_dtype, b_dtype;  // as stored
  int64_t numel = 0;
  int64_t differing = 0;  // elements
  // Absolute differences, in fp64. NaN beside NaN is no difference; NaN beside a number, and
  // infinity beside another value, are an infinite one.
  double max = 0, mean = 0;

  bool equal() const { return differing == 0 && a_dtype == b_dtype; }
};

struct CheckpointDifference {
  std::filesystem::path a, b;
  TensorsDiffer tensors;
  std::vector<std::string> states_only_a, states_only_b;  // TENSOR/STATE, of tensors in both
  std::vector<StateDifference> states;                    // in the order of `a`

  bool equal() const;
};

// Compares the tensors of two step folders, of whatever meshes, state by state. Threads share the
// states. What else manifests say (step, configuration) is not compared.
CheckpointDifference diff_steps(const std::filesystem::path& a, const std::filesystem::path& b,
                                const ToolOptions& tool = {});

// As text: what differs alone, and how much is equal. As JSON: a row per state; a difference that
// is infinite is null.
void print_difference(const CheckpointDifference& difference, std::ostream& out);
nlohmann::ordered_json difference_json(const CheckpointDifference& difference);

}  // namespace tessera
