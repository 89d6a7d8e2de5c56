#include "training/engine/nonfinite.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include "kernels/kernels.h"

namespace tessera {

std::optional<std::string> first_nonfinite_gradient(const std::vector<FlatBucket*>& buckets,
                                                    const std::vector<TensorInfo>& table,
                                                    Mesh& mesh) {
  std::map<std::string, int64_t> index;
  for (const TensorInfo& tensor : table)
    index.emplace(tensor.name, static_cast<int64_t>(index.size()));
  const auto none = static_cast<int64_t>(table.size());
  int64_t first = none;
  for (FlatBucket* bucket : buckets) {
    if (!bucket->trainable()) continue;
    for (const Segment& segment : bucket->segments()) {
      const int64_t place = index.at(segment.parameter->spec.name);
      if (place >= first) continue;
      const at::Tensor grad = bucket->grad().narrow(0, segment.shard_offset, segment.slice.numel());
      if (!std::isfinite(kernels::sum_squares(grad))) first = place;
    }
  }
  at::Tensor agreed = at::full({1}, static_cast<double>(first), at::kDouble);
  mesh.world().all_reduce(agreed, ReduceOp::kMin).wait();
  first = static_cast<int64_t>(agreed.item<double>());
  if (first == none) return std::nullopt;
  return table[static_cast<size_t>(first)].name;
}

}  // namespace tessera
