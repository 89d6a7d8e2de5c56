#include "checkpoint/store/rank_bytes.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "base/error.h"

namespace tessera {
namespace {

// One copy into the ring, so that where the ring is small the other thread finds work early.
constexpr int64_t kCopyBytes = int64_t{4} << 20;

// A rank's share of a piece that `replicas` ranks hold alike.
BoxSlice own_share(const Piece& piece) {
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

void copy(const OwnPart& part, int64_t at, const CopyOut& copy_out, std::byte* to, int64_t bytes) {
  if (part.on_device)
    copy_out(to, part.data + at, bytes);
  else
    std::memcpy(to, part.data + at, static_cast<size_t>(bytes));
}

}  // namespace

std::vector<OwnPart> own_parts(const std::vector<Piece>& pieces, int rank) {
  std::vector<OwnPart> parts;
  std::set<std::string> keys;
  for (const Piece& piece : pieces) {
    FilePiece own{piece.tensor, piece.state, own_share(piece), piece.dtype};
    if (own.slice.numel() == 0) continue;
    if (const std::string key = piece_key(piece.tensor, piece.state); !keys.insert(key).second)
      fail("checkpoint", "rank {} gives two pieces of '{}'; a file holds one per tensor and state",
           rank, key);
    const std::byte* data =
        piece.data + (own.slice.begin - piece.slice.begin) * dtype_size(piece.dtype);
    parts.push_back({std::move(own), data, piece.on_device});
  }
  return parts;
}

std::span<const std::byte> DirectBytes::next(int64_t most) {
  const OwnPart& part = parts_.at(part_);
  if (part.on_device) most = std::min<int64_t>(most, std::ssize(buffer_));
  const int64_t bytes = std::min(most, part.piece.bytes() - done_);
  std::span<const std::byte> data(part.data + done_, static_cast<size_t>(bytes));
  if (part.on_device) {
    copy(part, done_, copy_out_, buffer_.data(), bytes);
    data = buffer_.first(static_cast<size_t>(bytes));
  }
  done_ += bytes;
  if (done_ == part.piece.bytes()) {
    ++part_;
    done_ = 0;
  }
  return data;
}

std::span<const std::byte> RingBytes::next(int64_t most) {
  if (lent_ > 0) ring_.taken(lent_);
  const std::span<const std::byte> front = ring_.front();
  if (front.empty()) fail("checkpoint", "the copy of the states ended before all of it was there");
  lent_ = std::min<int64_t>(most, std::ssize(front));
  return front.first(static_cast<size_t>(lent_));
}

void copy_into(ByteRing& ring, const std::vector<OwnPart>& parts, const CopyOut& copy_out) {
  for (const OwnPart& part : parts) {
    for (int64_t done = 0; done < part.piece.bytes();) {
      const std::span<std::byte> room = ring.room();
      if (room.empty()) return;
      const int64_t bytes =
          std::min({int64_t{std::ssize(room)}, kCopyBytes, part.piece.bytes() - done});
      copy(part, done, copy_out, room.data(), bytes);
      ring.filled(bytes);
      done += bytes;
    }
  }
  ring.end();
}

int64_t total_bytes(const std::vector<OwnPart>& parts) {
  int64_t bytes = 0;
  for (const OwnPart& part : parts) bytes += part.piece.bytes();
  return bytes;
}

}  // namespace tessera
