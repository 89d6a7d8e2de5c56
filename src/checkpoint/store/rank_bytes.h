#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/format/pieces.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/byte_ring.h"

namespace tessera {

// What one rank writes of a piece that it holds: all of it or, where several ranks hold it alike,
// its share.
struct OwnPart {
  FilePiece piece;
  const std::byte* data = nullptr;
  bool on_device = false;  // Piece::on_device
};

// The parts of all pieces, without empty ones, in their order. Error for a piece that is given
// twice or whose replica is out of range; `rank` is for messages.
std::vector<OwnPart> own_parts(const std::vector<Piece>& pieces, int rank);

// to (host) <- from (device), `bytes` of them, done on return. Needed where pieces lie on a device.
using CopyOut = std::function<void(std::byte* to, const std::byte* from, int64_t bytes)>;

// The bytes of a rank's file as its writer takes them: part after part.
class RankBytes {
 public:
  virtual ~RankBytes() = default;
  // The next bytes, at least one and at most `most`; good until the next call.
  virtual std::span<const std::byte> next(int64_t most) = 0;
};

// Straight from where the pieces lie, or through `buffer` where that is a device.
class DirectBytes : public RankBytes {
 public:
  DirectBytes(const std::vector<OwnPart>& parts, CopyOut copy_out, std::span<std::byte> buffer)
      : parts_(parts), copy_out_(std::move(copy_out)), buffer_(buffer) {}
  std::span<const std::byte> next(int64_t most) override;

 private:
  const std::vector<OwnPart>& parts_;
  CopyOut copy_out_;
  std::span<std::byte> buffer_;
  size_t part_ = 0;
  int64_t done_ = 0;  // bytes of that part
};

// From a ring that another thread fills by copy_into(). Error when the ring ends too early.
class RingBytes : public RankBytes {
 public:
  explicit RingBytes(ByteRing& ring) : ring_(ring) {}
  std::span<const std::byte> next(int64_t most) override;

 private:
  ByteRing& ring_;
  int64_t lent_ = 0;
};

// Copies all parts into the ring and ends it. Returns early where the other thread gives up.
void copy_into(ByteRing& ring, const std::vector<OwnPart>& parts, const CopyOut& copy_out);

// Of all parts together.
int64_t total_bytes(const std::vector<OwnPart>& parts);

}  // namespace tessera
