#pragma once

#include "checkpoint/format/pieces.h"
#include "parallel/mesh_shape.h"
#include "parallel/parameter.h"

namespace tessera {

// Says in `piece`, which is of this parameter, which of the ranks that hold it alike has these
// places in a mesh of this shape.
inline void set_replica(Piece& piece, const Parameter& parameter, const MeshShape& mesh,
                        int dp_replicate_rank, int tp_rank) {
  const int copies = parameter.spec.tp.copies(mesh.tp);
  piece.replica = dp_replicate_rank * copies + parameter.spec.tp.copy(tp_rank);
  piece.replicas = mesh.dp_replicate * copies;
}

}  // namespace tessera
