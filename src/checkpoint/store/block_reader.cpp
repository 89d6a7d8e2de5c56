#include "checkpoint/store/block_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/files/late_file.h"

namespace tessera {
namespace {

constexpr int64_t kBufferBytes = int64_t{4} << 20;
constexpr size_t kOpenFiles = 16;

}  // namespace

BlockReader::BlockReader(std::shared_ptr<const StoredCheckpoint> checkpoint)
    : checkpoint_(std::move(checkpoint)),
      buffer_(static_cast<size_t>(kBufferBytes)),
      verified_(checkpoint_->index().digests().size(), 0) {}

BlockReader::Part BlockReader::read(const StoredPiece& piece, int64_t at, int64_t limit) {
  const int64_t block_bytes = checkpoint_->index().block_bytes();
  const int64_t block = at / block_bytes;
  const bool goes_on = long_.piece == &piece && long_.block == block && at >= long_.done;
  if (!goes_on) finish();
  if (verified(piece, block)) {
    int64_t end = std::min(limit, at + kBufferBytes);
    for (int64_t next = block + 1; next <= (end - 1) / block_bytes; ++next)
      if (!verified(piece, next)) end = bounds(piece, next).first;
    return fill(piece, at, end);
  }
  const auto [begin, end] = bounds(piece, block);
  return end - begin <= kBufferBytes ? read_blocks(piece, block, limit)
                                     : read_long_block(piece, block, at);
}

// Block number `first` and those behind it that hold bytes before `limit`, as many as fit.
BlockReader::Part BlockReader::read_blocks(const StoredPiece& piece, int64_t first, int64_t limit) {
  const int64_t begin = bounds(piece, first).first, blocks = checkpoint_->index().num_blocks(piece);
  int64_t last = first + 1;
  for (; last < blocks && !verified(piece, last); ++last) {
    const auto [next, end] = bounds(piece, last);
    if (next >= limit || end - begin > kBufferBytes) break;
  }
  const Part part = fill(piece, begin, bounds(piece, last - 1).second);
  for (int64_t block = first; block < last; ++block) {
    const auto [from, to] = bounds(piece, block);
    check(piece, block, xxh3_64(part.data + (from - begin), static_cast<size_t>(to - from)));
  }
  return part;
}

BlockReader::Part BlockReader::read_long_block(const StoredPiece& piece, int64_t block,
                                               int64_t at) {
  if (!long_.piece) long_ = {&piece, block, bounds(piece, block).first, Xxh3()};
  while (true)
    if (const Part part = hash_next(); part.holds(at)) return part;
}

// The next part of the long block that is begun.
BlockReader::Part BlockReader::hash_next() {
  const StoredPiece& piece = *long_.piece;
  const int64_t end = bounds(piece, long_.block).second;
  const Part part = fill(piece, long_.done, std::min(end, long_.done + kBufferBytes));
  long_.hash.update(part.data, static_cast<size_t>(part.end - part.begin));
  long_.done = part.end;
  if (long_.done == end) {
    long_.piece = nullptr;
    check(piece, long_.block, long_.hash.digest());
  }
  return part;
}

void BlockReader::finish() {
  while (long_.piece) hash_next();
}

void BlockReader::check(const StoredPiece& piece, int64_t block, uint64_t digest) {
  const PieceIndex& index = checkpoint_->index();
  const uint64_t listed = index.digests()[static_cast<size_t>(piece.first_block + block)];
  if (digest != listed) {
    const auto [begin, end] = bounds(piece, block);
    fail_damaged("checkpoint",
                 "{}: piece '{}' (bytes {} to {}): the checksum is {}, {} says {}; the data is "
                 "damaged, use another checkpoint",
                 checkpoint_->file(piece.file).string(), checkpoint_->name(piece),
                 piece.offset + begin, piece.offset + end, xxh3_text(digest),
                 checkpoint_->manifest().index ? "the index" : "the file's header",
                 xxh3_text(listed));
  }
  verified(piece, block) = 1;
}

BlockReader::Part BlockReader::fill(const StoredPiece& piece, int64_t begin, int64_t end) {
  each_part_();
  open(piece.file).read_at(buffer_.data(), end - begin, piece.offset + begin);
  bytes_read_ += end - begin;
  return {begin, end, buffer_.data()};
}

const File& BlockReader::open(int32_t file) {
  const auto known = std::find_if(files_.begin(), files_.end(),
                                  [&](const auto& other) { return other.first == file; });
  if (known != files_.end()) {
    std::rotate(known, known + 1, files_.end());
    return files_.back().second;
  }
  // It was there when the checkpoint was opened, maybe by a process on another node.
  const int64_t size = checkpoint_->manifest().files[static_cast<size_t>(file)].size;
  const std::filesystem::path path = checkpoint_->file(file);
  if (!wait_until_visible(path, size))
    fail("checkpoint",
         "{} is not to be seen here with its {} bytes, but was when the checkpoint was opened; its "
         "folder must be on a file system that all nodes share, and nothing may change it",
         path.string(), size);
  if (files_.size() == kOpenFiles) files_.erase(files_.begin());
  files_.emplace_back(file, File::open(path));
  ++files_opened_;
  return files_.back().second;
}

char& BlockReader::verified(const StoredPiece& piece, int64_t block) {
  return verified_[static_cast<size_t>(piece.first_block + block)];
}

std::pair<int64_t, int64_t> BlockReader::bounds(const StoredPiece& piece, int64_t block) const {
  const int64_t block_bytes = checkpoint_->index().block_bytes();
  const int64_t begin = block * block_bytes;
  return {begin, begin + std::min(block_bytes, piece.bytes() - begin)};
}

}  // namespace tessera
