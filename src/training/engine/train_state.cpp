#include "training/engine/train_state.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "training/engine/piece_replica.h"

namespace tessera {
namespace {

Dtype file_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return Dtype::kF32;
    case at::kDouble:
      return Dtype::kF64;
    case at::kBFloat16:
      return Dtype::kBF16;
    default:
      fail("train", "no checkpoint holds a state of type {}", c10::toString(dtype));
  }
}

}  // namespace

at::Tensor state_of(FlatBucket& bucket, size_t index) {
  if (index == 0) return bucket.master();
  return bucket.trainable() ? bucket.moments().at(index - 1) : at::Tensor();
}

Piece piece_of(const Segment& segment, const std::string& name, const at::Tensor& state) {
  return {.tensor = segment.parameter->spec.name,
          .state = name,
          .slice = segment.slice,
          .dtype = file_dtype(state.scalar_type()),
          .data = static_cast<std::byte*>(state.data_ptr()) +
                  segment.shard_offset * state.element_size(),
          .on_device = !state.is_cpu()};
}

std::vector<TensorInfo> tensor_infos(const std::vector<Stage*>& stages) {
  std::vector<TensorInfo> infos;
  for (Stage* stage : stages)
    for (const auto& parameter : stage->table().parameters()) {
      const auto& spec = parameter.spec;
      infos.push_back({spec.name, spec.shape});
      if (!spec.trainable) infos.back().states = {kStateParam};
    }
  return infos;
}

std::vector<Piece> state_pieces(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                                const std::vector<std::string>& states) {
  std::vector<Piece> pieces;
  for (FlatBucket* bucket : buckets) {
    bucket->settle();
    for (size_t i = 0; i < states.size(); ++i) {
      const at::Tensor state = state_of(*bucket, i);
      if (!state.defined()) continue;
      for (const Segment& segment : bucket->segments()) {
        pieces.push_back(piece_of(segment, states[i], state));
        set_replica(pieces.back(), *segment.parameter, mesh.shape(), mesh.dp_replicate_rank(),
                    mesh.tp_rank());
      }
    }
  }
  return pieces;
}

}  // namespace tessera
