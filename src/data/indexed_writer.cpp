#include "data/indexed_writer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/unfinished.h"
#include "base/system_error.h"
#include "data/megatron_layout.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// A sequence length is an i32: a longer document takes several sequences.
constexpr int64_t kMaxSequence = std::numeric_limits<int32_t>::max();

fs::path with_ending(const fs::path& prefix, const std::string& ending) {
  return fs::path(prefix.string() + ending);
}

}  // namespace

IndexedWriter::IndexedWriter(const fs::path& prefix)
    : bin_path_(with_ending(prefix, ".bin")), idx_path_(with_ending(prefix, ".idx")) {
  bin_temporary_ = unfinished_name(bin_path_);
  idx_temporary_ = unfinished_name(idx_path_);
  std::error_code error;
  const fs::path folder = folder_of(prefix);
  fs::create_directories(folder, error);
  if (error)
    fail_user("data", "cannot make the folder {}: {}; choose another output prefix",
              folder.string(), error.message());
  for (const fs::path& path : {bin_path_, idx_path_}) remove_unfinished_files(path);
  bin_ = open(bin_temporary_);
  idx_ = open(idx_temporary_);
  for (const Stream* file : {&bin_, &idx_}) lock_unfinished(::fileno(file->get()));
  // The scratch files have no name: they vanish with the writer, whatever happens.
  const auto scratch = [&](const std::string& ending) {
    const fs::path path = with_ending(idx_temporary_, ending);
    Stream file = open(path);
    ::unlink(path.c_str());
    return file;
  };
  lengths_ = scratch(".lengths");
  document_ends_ = scratch(".documents");
}

IndexedWriter::~IndexedWriter() {
  std::error_code ignored;  // what is published has no temporary name
  fs::remove(bin_temporary_, ignored);
  fs::remove(idx_temporary_, ignored);
}

IndexedWriter::Stream IndexedWriter::open(const fs::path& path) const {
  Stream file(std::fopen(path.c_str(), "w+b"));
  if (!file)
    fail_user("data", "cannot write {}: {}; choose another output prefix", path.string(),
              std::strerror(errno));
  return file;
}

void IndexedWriter::write(std::FILE* file, const void* data, size_t bytes) const {
  if (std::fwrite(data, 1, bytes, file) != bytes) {
    fail("data", "writing {} failed after {} tokens: {}", bin_path_.string(), tokens_,
         std::strerror(errno));
  }
}

void IndexedWriter::add(std::span<const char> bytes) {
  write(bin_.get(), bytes.data(), bytes.size());
  auto left = static_cast<int64_t>(bytes.size());
  while (left > 0) {
    if (sequence_tokens_ == kMaxSequence) end_sequence();
    const int64_t n = std::min(left, kMaxSequence - sequence_tokens_);
    sequence_tokens_ += n;
    document_tokens_ += n;
    tokens_ += n;
    left -= n;
  }
}

void IndexedWriter::end_sequence() {
  const auto length = static_cast<int32_t>(sequence_tokens_);
  write(lengths_.get(), &length, sizeof(length));
  ++sequences_;
  sequence_tokens_ = 0;
}

void IndexedWriter::end_document() {
  if (document_tokens_ == 0) return;
  end_sequence();
  write(document_ends_.get(), &sequences_, sizeof(sequences_));
  ++documents_;
  document_tokens_ = 0;
}

void IndexedWriter::copy_from(std::FILE* scratch) {
  std::rewind(scratch);
  std::array<char, 1 << 16> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), scratch)) > 0;) {
    write(idx_.get(), buffer.data(), n);
  }
  if (std::ferror(scratch)) fail("data", "reading back a part of {} failed", idx_path_.string());
}

void IndexedWriter::write_index() {
  const auto put = [&](auto value) { write(idx_.get(), &value, sizeof(value)); };
  write(idx_.get(), megatron::kMagic.data(), megatron::kMagic.size());
  put(megatron::kVersion);
  put(uint8_t{1});  // u8
  put(static_cast<uint64_t>(sequences_));
  put(static_cast<uint64_t>(documents_ + 1));
  copy_from(lengths_.get());

  std::rewind(lengths_.get());  // the offsets are the sums of the lengths
  std::vector<int32_t> block(1 << 14);
  int64_t offset = 0;
  for (size_t n;
       (n = std::fread(block.data(), sizeof(int32_t), block.size(), lengths_.get())) > 0;) {
    for (size_t i = 0; i < n; ++i) {
      put(offset);
      offset += block[i];
    }
  }
  put(int64_t{0});
  copy_from(document_ends_.get());
}

void IndexedWriter::sync(Stream file) const {
  const bool written = std::fflush(file.get()) == 0 &&
                       (::fsync(::fileno(file.get())) == 0 || is_sync_unsupported(errno));
  const int error = errno;
  if (!written) fail("data", "writing {} failed: {}", bin_path_.string(), reason_of(error));
}

void IndexedWriter::finish() {
  end_document();
  write_index();
  sync(std::move(bin_));
  sync(std::move(idx_));
}

void IndexedWriter::publish_tokens() {
  rename_path(bin_temporary_, bin_path_);
}

void IndexedWriter::publish_index() {
  rename_path(idx_temporary_, idx_path_);
}

}  // namespace tessera
