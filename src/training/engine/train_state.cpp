#include "training/engine/train_state.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "parallel/device/host_copy.h"

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

// State number `index` of a bucket, undefined if it has none: the master, then the moments.
at::Tensor state_of(FlatBucket& bucket, size_t index) {
  if (index == 0) return bucket.master();
  return bucket.trainable() ? bucket.moments().at(index - 1) : at::Tensor();
}

void share(Piece& piece, const Parameter& parameter, const Mesh& mesh) {
  piece.replica = mesh.dp_replicate_rank();
  piece.replicas = mesh.dp_replicate();
  const int copies = parameter.spec.tp.copies(mesh.tp());
  piece.replica = piece.replica * copies + parameter.spec.tp.copy(mesh.tp_rank());
  piece.replicas *= copies;
}

// `state`: on the host.
Piece piece_of(const Segment& segment, const std::string& name, const at::Tensor& state) {
  return {.tensor = segment.parameter->spec.name,
          .state = name,
          .slice = segment.slice,
          .dtype = file_dtype(state.scalar_type()),
          .data = static_cast<std::byte*>(state.data_ptr()) +
                  segment.shard_offset * state.element_size()};
}

}  // namespace

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

Snapshot take_snapshot(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                       const std::vector<std::string>& states) {
  Snapshot snapshot;
  for (FlatBucket* bucket : buckets) {
    bucket->settle();
    for (size_t i = 0; i < states.size(); ++i) {
      at::Tensor state = state_of(*bucket, i);
      if (!state.defined()) continue;
      state = host_copy(bucket->device(), state);
      snapshot.copies.push_back(state);
      for (const Segment& segment : bucket->segments()) {
        snapshot.pieces.push_back(piece_of(segment, states[i], state));
        share(snapshot.pieces.back(), *segment.parameter, mesh);
      }
    }
  }
  return snapshot;
}

void load_states(const std::vector<FlatBucket*>& buckets, const std::vector<std::string>& states,
                 StateSource& source) {
  for (FlatBucket* bucket : buckets) {
    bucket->settle();
    for (size_t i = 0; i < states.size(); ++i) {
      const at::Tensor state = state_of(*bucket, i);
      if (!state.defined()) continue;
      const at::Tensor host = state.is_cpu() ? state : at::zeros_like(state, at::kCPU);
      for (const Segment& segment : bucket->update_segments())
        source.read(piece_of(segment, states[i], host));
      if (!host.is_same(state)) copy_from_host(bucket->device(), state, host);
    }
  }
}

}  // namespace tessera
