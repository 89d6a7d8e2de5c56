#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "parallel/micro_batch.h"
#include "parallel/parameter.h"

namespace tessera {

using TensorList = std::vector<at::Tensor>;

// A link of the chain that the executor drives: embedding, a block, or the head with the loss.
//
// A stage takes a list of tensors and returns a list. It changes neither its inputs nor its
// parameters in place, keeps no tensor between calls, and is deterministic: recompute calls
// forward() again. Its gradients w.r.t. parameters are added into Parameter::grad, by autograd or
// by its own autograd functions. The last stage returns a scalar of fp32 (fp64 in fp64 runs): this
// rank's sum of weighted losses, the same on all ranks of a tp group. In evaluation (no gradients)
// counts of right predictions may follow it: see models/scores.h.
class Stage {
 public:
  Stage(std::string name, int tp, int tp_rank) : table_(tp, tp_rank), name_(std::move(name)) {}
  virtual ~Stage() = default;

  virtual TensorList forward(const TensorList& inputs, const MicroBatch& batch) = 0;

  // False where the backward pass does not read the parameters' values (an embedding).
  virtual bool backward_reads_parameters() const { return true; }

  // The most bytes of logits and of what is made of them that exist at once, for micro-batches of
  // so many tokens. Its parameters are bound to buckets.
  virtual int64_t logits_bytes(int64_t /*tokens*/) const { return 0; }

  const std::string& name() const { return name_; }
  ParameterTable& table() { return table_; }
  // Parameters of other stages' tables that this stage reads too (tied weights).
  const std::vector<Parameter*>& borrowed() const { return borrowed_; }

 protected:
  // The parameter gets a bucket of its own, gathered and reduced for each stage that uses it.
  Parameter& borrow(Parameter& parameter) {
    borrowed_.push_back(&parameter);
    return parameter;
  }

  ParameterTable table_;

 private:
  std::string name_;
  std::vector<Parameter*> borrowed_;
};

}  // namespace tessera
