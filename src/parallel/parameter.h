#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/box.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// How a parameter lies on the tensor-parallel axis: every rank holds all of it, or an equal part of
// one dim. The value fixes who draws, sums, counts, saves and loads what; there are no other flags.
struct Placement {
  static Placement replicate() { return {-1}; }
  static Placement shard(int dim) { return {dim}; }
  bool is_sharded() const { return dim >= 0; }

  int dim = -1;
};

// How a weight starts: normal with mean 0, or a constant.
struct Initializer {
  static Initializer normal(double std) { return {std, 0.0}; }
  static Initializer constant(double value) { return {0.0, value}; }

  double std = 0.0;
  double value = 0.0;
};

struct ParameterSpec {
  std::string name;            // Hugging Face's name
  std::vector<int64_t> shape;  // of the whole tensor
  Placement tp;
  Initializer init;
  bool decay = true;       // weight decay applies
  bool trainable = true;   // false: frozen; no gradient, no moments, no reduction
  bool keep_fp32 = false;  // held and used in fp32 where the other parameters are halves
  // Of the group of optimizer.groups that rules it.
  double lr_scale = 1.0;
  std::optional<double> weight_decay = std::nullopt;  // whatever `decay` says
};

// A row of the parameter table: the spec, this rank's tensor-parallel part of it, and the local
// tensors. `value` and `grad` are views of a flat bucket whose storage is pointed at a gathered
// copy (or a gradient slot) only while the executor holds the stage; see
// parallel/fsdp/flat_bucket.h.
struct Parameter {
  ParameterSpec spec;
  Box box;  // this rank's part of the whole tensor
  at::Tensor value;
  at::Tensor grad;  // undefined if frozen
  // A module's own parameter, which then is `value`, and whose values are where it starts.
  at::Tensor module_tensor;
};

// Parameters of equal trailing shape that lie back to back, so that one matrix product serves them
// all: q, k, v or gate, up. Each stays a parameter of its own for files and for resharding.
struct ParameterPack {
  std::vector<Parameter*> parts;
  at::Tensor value;  // [sum of the parts' local rows, columns]
  at::Tensor grad;
};

// The parameters of one stage, in the order in which they lie in its bucket. Addresses are stable.
class ParameterTable {
 public:
  ParameterTable(int tp, int tp_rank) : tp_(tp), tp_rank_(tp_rank) {}

  // Error if a sharded dim does not divide by tp (the configuration's rules come first).
  Parameter& add(ParameterSpec spec) { return *add_pack({std::move(spec)}).parts[0]; }
  ParameterPack& add_pack(std::vector<ParameterSpec> specs);

  std::deque<Parameter>& parameters() { return parameters_; }
  const std::deque<Parameter>& parameters() const { return parameters_; }
  std::deque<ParameterPack>& packs() { return packs_; }

 private:
  int tp_;
  int tp_rank_;
  std::deque<Parameter> parameters_;
  std::deque<ParameterPack> packs_;
};

}  // namespace tessera
