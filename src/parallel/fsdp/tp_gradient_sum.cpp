#include "parallel/fsdp/tp_gradient_sum.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera {

TpGradientSum::TpGradientSum(const std::vector<FlatBucket*>& buckets, Mesh& mesh) : mesh_(mesh) {
  if (mesh.tp() == 1) return;
  std::map<int, int64_t> numel;
  for (const FlatBucket* bucket : buckets) {
    if (!bucket->trainable()) continue;
    for (const Segment& segment : bucket->update_segments()) {
      const ParameterSpec& spec = segment.parameter->spec;
      if (!spec.sums_gradient_over_tp()) continue;
      const at::Tensor part = bucket->grad().narrow(0, segment.shard_offset, segment.slice.numel());
      const int copies = spec.tp.copies(mesh.tp());
      if (part.numel() >= kLargeTpGradient) {
        large_[copies].push_back(part);
      } else {
        small_[copies].push_back(part);
        numel[copies] += part.numel();
      }
    }
  }
  int64_t most = 0;
  for (const auto& [copies, count] : numel) most = std::max(most, count);
  if (most > 0) packed_ = at::empty({most}, small_.begin()->second[0].options());
}

void TpGradientSum::run() {
  for (const auto& [copies, parts] : large_)
    for (const at::Tensor& part : parts)
      mesh_.tp_copies_group(copies).all_reduce(part, ReduceOp::kSum).wait();
  for (auto& [copies, parts] : small_) {
    int64_t end = 0;
    for (const at::Tensor& part : parts) {
      packed_.narrow(0, end, part.numel()).copy_(part);
      end += part.numel();
    }
    mesh_.tp_copies_group(copies).all_reduce(packed_.narrow(0, 0, end), ReduceOp::kSum).wait();
    int64_t begin = 0;
    for (at::Tensor& part : parts) {
      part.copy_(packed_.narrow(0, begin, part.numel()));
      begin += part.numel();
    }
  }
}

void TpGradientSum::add_to(MemoryLedger& ledger) const {
  if (packed_.defined()) ledger.add(MemoryClass::kStaging, static_cast<int64_t>(packed_.nbytes()));
}

}  // namespace tessera
