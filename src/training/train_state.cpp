#include "training/train_state.h"

#include <ATen/ATen.h>

#include "base/error.h"

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
  if (parameter.spec.tp.is_sharded()) return;
  piece.replica = piece.replica * mesh.tp() + mesh.tp_rank();
  piece.replicas *= mesh.tp();
}

// `mesh`: whose ranks divide what they hold alike; none: each fills all of its own.
std::vector<Piece> pieces_of(FlatBucket& bucket, const std::vector<Segment>& segments,
                             const std::vector<std::string>& states, const Mesh* mesh) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < states.size(); ++i) {
    const at::Tensor state = state_of(bucket, i);
    if (!state.defined()) continue;
    auto* data = static_cast<std::byte*>(state.data_ptr());
    for (const Segment& segment : segments) {
      Piece piece{.tensor = segment.parameter->spec.name,
                  .state = states[i],
                  .slice = segment.slice,
                  .dtype = file_dtype(state.scalar_type()),
                  .data = data + segment.shard_offset * state.element_size()};
      if (mesh) share(piece, *segment.parameter, *mesh);
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
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

std::vector<Piece> pieces_to_save(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                                  const std::vector<std::string>& states) {
  std::vector<Piece> pieces;
  for (FlatBucket* bucket : buckets)
    for (Piece& piece : pieces_of(*bucket, bucket->segments(), states, &mesh))
      pieces.push_back(std::move(piece));
  return pieces;
}

std::vector<Piece> pieces_to_load(const std::vector<FlatBucket*>& buckets,
                                  const std::vector<std::string>& states) {
  std::vector<Piece> pieces;
  for (FlatBucket* bucket : buckets)
    for (Piece& piece : pieces_of(*bucket, bucket->update_segments(), states, nullptr))
      pieces.push_back(std::move(piece));
  return pieces;
}

}  // namespace tessera
