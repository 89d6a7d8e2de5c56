#include "checkpoint/store/stored_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/late_file.h"
#include "base/xxh3.h"
#include "checkpoint/format/coverage.h"
#include "checkpoint/format/old_rank_file.h"

namespace tessera {
namespace {

constexpr int64_t kMaxIndexBytes = int64_t{16} << 30;  // of 300 million pieces

// DamagedError only if the file is certainly missing or no regular file. One that cannot be looked
// at may be whole: Error.
void check_present(const std::filesystem::path& path) {
  const std::filesystem::file_type type = type_of(path);
  if (type == std::filesystem::file_type::not_found)
    fail_damaged("checkpoint", "{} is missing; the checkpoint is not whole", path.string());
  if (type != std::filesystem::file_type::regular)
    fail_damaged("checkpoint", "{} is not a regular file", path.string());
}

void check_size(const std::filesystem::path& path, int64_t listed, std::chrono::milliseconds late) {
  if (wait_until_visible(path, listed, late)) return;
  check_present(path);
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) fail("checkpoint", "cannot look at {}: {}", path.string(), error.message());
  if (size != listed)
    fail_damaged("checkpoint", "{} has {} bytes, the manifest says {}; it is truncated or replaced",
                 path.string(), size, listed);
}

std::string read_index_bytes(const std::filesystem::path& path, const ManifestIndex& listed) {
  if (listed.size > kMaxIndexBytes)
    fail_damaged("checkpoint", "{} has {} bytes, an index has at most {}", path.string(),
                 listed.size, kMaxIndexBytes);
  std::string bytes(static_cast<size_t>(listed.size), '\0');
  File::open(path).read_at(bytes.data(), listed.size, 0);
  if (const std::string found = xxh3_hex(bytes.data(), bytes.size()); found != listed.xxh3)
    fail_damaged("checkpoint", "{}: the checksum is {}, the manifest says {}; it is damaged",
                 path.string(), found, listed.xxh3);
  return bytes;
}

PieceIndex read_index(const std::filesystem::path& step_dir, const Manifest& manifest,
                      std::chrono::milliseconds late) {
  if (!manifest.index) return read_old_rank_files(step_dir, manifest);
  const std::filesystem::path path = step_dir / manifest.index->name;
  check_size(path, manifest.index->size, late);
  return PieceIndex::from_bytes(read_index_bytes(path, *manifest.index), path.string(), manifest);
}

}  // namespace

std::shared_ptr<const StoredCheckpoint> StoredCheckpoint::open(
    const std::filesystem::path& step_dir, std::chrono::milliseconds late) {
  if (type_of(step_dir) == std::filesystem::file_type::not_found)
    fail_user("checkpoint",
              "{} does not exist; give the folder of a checkpoint, such as "
              "RUN/checkpoints/step-00000100",
              step_dir.string());
  wait_until_visible(step_dir / "manifest.json", std::nullopt, late);
  check_present(step_dir / "manifest.json");
  std::string text = read_manifest_text(step_dir);
  Manifest manifest = parse_manifest(text, (step_dir / "manifest.json").string());
  for (const ManifestFile& file : manifest.files) check_size(step_dir / file.name, file.size, late);
  PieceIndex index = read_index(step_dir, manifest, late);
  check_coverage(step_dir.string(), manifest, index);
  return std::make_shared<StoredCheckpoint>(step_dir, std::move(text), std::move(manifest),
                                            std::move(index));
}

StoredCheckpoint::StoredCheckpoint(std::filesystem::path dir, std::string manifest_text,
                                   Manifest manifest, PieceIndex index)
    : dir_(std::move(dir)),
      manifest_text_(std::move(manifest_text)),
      manifest_(std::move(manifest)),
      index_(std::move(index)),
      numbers_(manifest_) {}

std::span<const StoredPiece> StoredCheckpoint::pieces(const std::string& tensor,
                                                      const std::string& state) const {
  const auto number = numbers_.tensor(tensor), of_state = numbers_.state(state);
  const std::vector<std::string>& states =
      number ? manifest_.states_of(manifest_.tensors[static_cast<size_t>(*number)])
             : manifest_.states;
  if (!number || !of_state || std::find(states.begin(), states.end(), state) == states.end())
    fail_user("checkpoint", "{} holds no state '{}' of a tensor '{}'; its states are {}",
              dir_.string(), state, tensor, fmt::join(states, ", "));
  return index_.of(*number, *of_state);
}

const TensorInfo& StoredCheckpoint::tensor(const std::string& name) const {
  const auto number = numbers_.tensor(name);
  if (!number) fail_user("checkpoint", "{} holds no tensor '{}'", dir_.string(), name);
  return manifest_.tensors[static_cast<size_t>(*number)];
}

Dtype StoredCheckpoint::dtype(const std::string& tensor, const std::string& state) const {
  const auto found = pieces(tensor, state);
  return found.empty() ? Dtype::kF32 : found.front().dtype;  // of no elements: none is stored
}

std::string StoredCheckpoint::name(const StoredPiece& piece) const {
  return fmt::format("{}/{}", manifest_.tensors[static_cast<size_t>(piece.tensor)].name,
                     manifest_.states[static_cast<size_t>(piece.state)]);
}

}  // namespace tessera
