#include "checkpoint/format/own_part.h"

#include "base/error.h"

namespace tessera {

BoxSlice own_part(const Piece& piece) {
  if (piece.replicas < 1 || piece.replica < 0 || piece.replica >= piece.replicas)
    fail("checkpoint", "tensor '{}': replica {} of {}; the rule is 0 <= replica < replicas",
         piece.tensor, piece.replica, piece.replicas);
  // numel x replica / replicas, without the product that could pass 2^63.
  const int64_t each = piece.slice.numel() / piece.replicas;
  const int64_t rest = piece.slice.numel() % piece.replicas;
  const auto bound = [&](int replica) {
    return piece.slice.begin + each * replica + rest * replica / piece.replicas;
  };
  return {piece.slice.box, bound(piece.replica), bound(piece.replica + 1)};
}

}  // namespace tessera
