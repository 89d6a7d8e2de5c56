#include "parallel/tensor_parallel/vocab_argmax.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace tessera {
namespace {

// Rows of logits that exist at once.
constexpr int64_t kChunkBytes = int64_t{64} << 20;

}  // namespace

at::Tensor vocab_parallel_argmax(const at::Tensor& h, const at::Tensor& weight,
                                 const at::Tensor& bias, int64_t vocab_start, Communicator& tp) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const int64_t columns = weight.size(0), all_rows = h.size(0);
  const auto wide = h.options().dtype(at::kDouble);
  at::Tensor largest = at::full({all_rows}, -kNone, wide);
  at::Tensor place = at::zeros({all_rows}, wide);
  const int64_t rows = columns == 0 ? all_rows
                                    : std::clamp<int64_t>(kChunkBytes / (columns * 8), 1,
                                                          std::max<int64_t>(all_rows, 1));
  for (int64_t begin = 0; begin < all_rows && columns > 0; begin += rows) {
    const int64_t n = std::min(rows, all_rows - begin);
    at::Tensor logits = at::mm(h.narrow(0, begin, n).to(weight.scalar_type()), weight.t());
    if (bias.defined()) logits += bias;
    const auto [value, column] = logits.max(1);
    largest.narrow(0, begin, n).copy_(value);
    place.narrow(0, begin, n).copy_(column + vocab_start);
  }
  const at::Tensor own = largest.clone();
  tp.all_reduce(largest, ReduceOp::kMax).wait();
  place.masked_fill_(own != largest, kNone);
  tp.all_reduce(place, ReduceOp::kMin).wait();
  return place.to(at::kLong);
}

}  // namespace tessera
