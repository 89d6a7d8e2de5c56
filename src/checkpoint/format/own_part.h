#pragma once

#include "checkpoint/format/pieces.h"

namespace tessera {

// The part of a piece that its rank writes. Error unless 0 <= replica < replicas.
BoxSlice own_part(const Piece& piece);

}  // namespace tessera
