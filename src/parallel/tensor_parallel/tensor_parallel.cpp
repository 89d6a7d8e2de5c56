#include "parallel/tensor_parallel/tensor_parallel.h"

#include <ATen/ATen.h>

#include <chrono>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

int64_t rows_of_part(const at::Tensor& x, int64_t parts) {
  if (x.size(0) % parts != 0)
    fail("tensor parallelism",
         "sequence parallelism splits the {} tokens of a micro-batch over {} ranks; they must "
         "divide",
         x.size(0), parts);
  return x.size(0) / parts;
}

at::Tensor with_rows(const at::Tensor& x, int64_t rows) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = rows;
  return at::empty(shape, x.options());
}

void wait_for(Work& work, TpTime* time) {
  const auto start = std::chrono::steady_clock::now();
  work.wait();
  if (!time) return;
  time->waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  time->operations += work.seconds();
}

}  // namespace

at::Tensor PendingTensor::get() {
  wait_for(work_, time_);
  work_ = {};
  return tensor_;
}

TensorParallel TensorParallel::with_all_tokens() const {
  TensorParallel all = *this;
  all.options_.sequence_parallel = false;
  return all;
}

void TensorParallel::wait(Work& work) const {
  wait_for(work, options_.time);
}

PendingTensor TensorParallel::started(at::Tensor tensor, Work work) const {
  PendingTensor pending(std::move(tensor), std::move(work), options_.time);
  if (options_.overlap == TpOverlap::kOff) pending.get();
  return pending;
}

at::Tensor TensorParallel::own_tokens(const at::Tensor& x) const {
  const int64_t rows = rows_of_part(x, token_parts());
  return x.narrow(0, token_part() * rows, rows);
}

at::Tensor TensorParallel::own_positions(int64_t samples, int64_t length,
                                         const at::TensorOptions& options) const {
  return own_tokens(at::arange(length, options).repeat({samples}));
}

PendingTensor TensorParallel::start_gather(const at::Tensor& own) const {
  if (!sequence_parallel()) return done(own);
  const at::Tensor whole = with_rows(own, own.size(0) * size());
  return started(whole, group_->all_gather(whole, own.contiguous()));
}

PendingTensor TensorParallel::start_sum(const at::Tensor& partial) const {
  return start_sum_into(
      sequence_parallel() ? with_rows(partial, rows_of_part(partial, size())) : partial, partial);
}

PendingTensor TensorParallel::start_sum_into(const at::Tensor& own,
                                             const at::Tensor& partial) const {
  return started(own, sequence_parallel() ? group_->reduce_scatter(own, partial)
                                          : group_->all_reduce(own, ReduceOp::kSum));
}

}  // namespace tessera
