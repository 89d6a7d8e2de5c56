#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/tensor_parallel/linear.h"

// What the tests of this folder share: layers on every number of ranks against plain ATen.
namespace tessera::testing {

inline at::Tensor random(at::IntArrayRef shape, int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randn(shape, generator, at::kFloat);
}

inline at::Tensor leaf(const at::Tensor& tensor) {
  return tensor.clone().set_requires_grad(true);
}

inline Weight weight_of(const at::Tensor& value) {
  return {value.clone(at::MemoryFormat::Contiguous),
          at::zeros(value.sizes(), value.options().requires_grad(false))};
}

// fp32 sums in another order.
inline void expect_equal(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  EXPECT_TRUE(at::allclose(a.detach(), b.detach(), 2e-5, 2e-5))
      << what << ": largest difference " << (a - b).abs().max().item<double>();
}

// Rows of part `rank` of `ranks` of a tensor, as ParameterTable divides them.
inline at::Tensor part_of(const at::Tensor& x, int dim, int ranks, int rank) {
  const int64_t each = x.size(dim) / ranks, rest = x.size(dim) % ranks;
  return x.narrow(dim, rank * each + std::min<int64_t>(rank, rest), each + (rank < rest ? 1 : 0));
}

// body(tp) on so many ranks, with and without sequence parallelism, in every mode of overlap.
inline void on_all_groups(const std::function<void(const TensorParallel& tp)>& body,
                          const std::vector<int>& sizes = {1, 2, 4}) {
  for (const int ranks : sizes) {
    for (const bool sequence_parallel : {false, true}) {
      for (const auto overlap : {TpOverlap::kOff, TpOverlap::kBackward, TpOverlap::kRing}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, overlap " +
                     std::to_string(static_cast<int>(overlap)) +
                     (sequence_parallel ? ", sequence parallel" : ""));
        run_thread_ranks(ranks, [&](Communicator& group) {
          body(TensorParallel(group, {.sequence_parallel = sequence_parallel, .overlap = overlap}));
        });
      }
    }
  }
}

// Sum over tp of what each rank has of a gradient that is partial under sequence parallelism.
inline at::Tensor completed(const at::Tensor& grad, const TensorParallel& tp) {
  const at::Tensor sum = grad.clone();
  if (tp.sequence_parallel()) tp.group().all_reduce(sum, ReduceOp::kSum).wait();
  return sum;
}

}  // namespace tessera::testing
