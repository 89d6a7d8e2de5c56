#include "training/train_state.h"

#include "base/error.h"

namespace tessera {
namespace {

at::Tensor& state_of(FlatBucket& bucket, const std::string& state) {
  if (state == kStateParam) return bucket.master();
  if (state == kStateExpAvg) return bucket.exp_avg();
  if (state == kStateExpAvgSq) return bucket.exp_avg_sq();
  fail("train", "unknown state '{}'", state);
}

}  // namespace

std::vector<TensorInfo> tensor_infos(const std::vector<Stage*>& stages) {
  std::vector<TensorInfo> infos;
  for (Stage* stage : stages)
    for (const auto& parameter : stage->table().parameters())
      infos.push_back({parameter.spec.name, parameter.spec.shape});
  return infos;
}

std::vector<Piece> pieces_of(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                             const std::vector<std::string>& states) {
  std::vector<Piece> pieces;
  for (FlatBucket* bucket : buckets) {
    for (const auto& state : states) {
      auto* data = state_of(*bucket, state).mutable_data_ptr<float>();
      for (const auto& segment : bucket->segments()) {
        const bool replicated = !segment.parameter->spec.tp.is_sharded();
        pieces.push_back({.tensor = segment.parameter->spec.name,
                          .state = state,
                          .slice = segment.slice,
                          .dtype = Dtype::kF32,
                          .data = reinterpret_cast<std::byte*>(data + segment.shard_offset),
                          .replica = replicated ? mesh.tp_rank() : 0,
                          .replicas = replicated ? mesh.tp() : 1});
      }
    }
  }
  return pieces;
}

std::vector<std::string> all_states() {
  return {kStateParam, kStateExpAvg, kStateExpAvgSq};
}

}  // namespace tessera
