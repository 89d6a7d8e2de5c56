#pragma once

#include <memory>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/pieces.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// The pieces that the ranks of a mesh that nobody has started would save of a checkpoint's states:
// what take_snapshot() gives there, without data. They follow from the model, from which of its
// tensors are frozen, and from the precision of the run that wrote the checkpoint.
class MeshPieces {
 public:
  // UserError if the model of the manifest cannot be split so, with the values of tp that would do,
  // if it is none that this program trains, or if the tensors are not the model's.
  MeshPieces(const Manifest& manifest, const MeshShape& mesh);
  ~MeshPieces();

  std::vector<Piece> of_rank(int rank) const;

 private:
  struct Place;  // of one rank of tp

  std::vector<std::string> states_;
  MeshShape mesh_;
  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace tessera
