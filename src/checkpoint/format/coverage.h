#pragma once

#include <string>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/piece_index.h"

namespace tessera {

// DamagedError unless every element of every state of every tensor lies in exactly one piece: the
// intervals of each box tile it, and the boxes tile the tensor. Also unless all pieces of a state
// of a tensor have one dtype. `checkpoint` names it in messages. The cost is linear in the number
// of pieces.
void check_coverage(const std::string& checkpoint, const Manifest& manifest,
                    const PieceIndex& index);

}  // namespace tessera
