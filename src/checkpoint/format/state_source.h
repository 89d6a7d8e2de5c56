#pragma once

#include "checkpoint/format/pieces.h"

namespace tessera {

// What states can be loaded from, whatever form and mesh they were written in.
class StateSource {
 public:
  StateSource() = default;
  StateSource(const StateSource&) = delete;
  StateSource& operator=(const StateSource&) = delete;
  virtual ~StateSource() = default;

  // Fills `piece.data` from what is stored of the piece's tensor and state; converts the dtype if
  // the stored one differs. UserError if there is no such state, or if a value is beyond the range
  // of the new dtype.
  virtual void read(const Piece& piece) = 0;
};

}  // namespace tessera
