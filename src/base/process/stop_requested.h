#pragma once

#include <exception>

namespace tessera {

// Thrown where work is broken off because a stop was asked for. No failure, so no Error: whoever
// catches it ends the run in order, with nothing lost.
class StopRequested : public std::exception {
 public:
  const char* what() const noexcept override { return "a stop was asked for"; }
};

}  // namespace tessera
