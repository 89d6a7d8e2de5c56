#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/box.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// How a parameter lies on the tensor-parallel axis: every rank holds all of it, or one part of one
// dim. The value fixes who draws, sums, counts, saves and loads what; there are no other flags.
struct Placement {
  static constexpr Placement replicate() { return {}; }
  // Equal parts. With `copies` > 1 there are tp / copies of them, and rank t holds number t /
  // copies: key and value heads fewer than tp.
  static constexpr Placement shard(int dim, int copies = 1) { return {dim, copies, false}; }
  // Parts that differ by at most one row, the larger ones first: a vocabulary that tp does not
  // divide. No rank has rows that do not exist.
  static constexpr Placement uneven_shard(int dim) { return {dim, 1, true}; }

  bool is_sharded() const { return dim >= 0; }
  // How many ranks of a tp group hold the same part as this rank, and its number among them.
  int copies(int tp) const { return is_sharded() ? shard_copies : tp; }
  int copy(int tp_rank) const { return is_sharded() ? tp_rank % shard_copies : tp_rank; }

  int dim = -1;
  int shard_copies = 1;
  bool uneven = false;
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
  // What the optimizer's group that it belongs to sets.
  double lr_scale = 1.0;
  std::optional<double> weight_decay = std::nullopt;  // whatever `decay` says
  // Of a replicated parameter: each rank's gradient covers a part of the tokens (sequence
  // parallelism) or of the heads, and their sum over tp is the gradient.
  bool partial_gradient = false;

  // Copies of a part always serve different heads.
  bool sums_gradient_over_tp() const {
    return tp.is_sharded() ? tp.shard_copies > 1 : partial_gradient;
  }
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
  // Elements that its place in a bucket takes: the largest part of any tp rank, so that all ranks
  // of a tp group cut their buckets alike.
  int64_t reserved = 0;
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

  // Error if a sharded dim cannot be divided so (the configuration's rules come first).
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
