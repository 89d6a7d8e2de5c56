#pragma once

#include "parallel/mesh.h"

namespace tessera {

// The place of `rank` in a mesh that nobody has started, on the CPU. Its groups have ranks and
// sizes, and every operation in them is an Error. For the sizes of what a rank would hold.
Mesh imagined_mesh(const MeshShape& shape, int rank);

}  // namespace tessera
