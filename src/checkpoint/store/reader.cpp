#include "checkpoint/store/reader.h"

// Reading a checkpoint of any mesh onto any other: the slice that is wanted is intersected with
// every stored piece of the tensor, and what they share is copied run by run. Pieces are read
// through one buffer of fixed size (pread, not mmap: mapped pages would count as memory of the
// process).
//
// A checksum covers a whole piece. So the first time that a piece is touched, it is read from front
// to back and hashed on the way, also where only a part of it is wanted.

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/files/files.h"
#include "base/xxh3.h"
#include "checkpoint/format/coverage.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/rank_file.h"

namespace tessera {
namespace {

constexpr int64_t kBufferBytes = int64_t{4} << 20;
constexpr int64_t kStreamBytes = int64_t{8} << 20;

// A stored piece and how far its checksum has got.
struct Source {
  StoredPiece piece;
  size_t file = 0;     // index into the manifest's files
  int64_t hashed = 0;  // elements, from the front
  std::optional<Xxh3> hash;
  bool verified = false;
};

// DamagedError only if the file is certainly missing or no regular file. One that cannot be looked
// at may be whole: Error.
void check_present(const std::filesystem::path& path) {
  const std::filesystem::file_type type = type_of(path);
  if (type == std::filesystem::file_type::not_found)
    fail_damaged("checkpoint", "{} is missing; the checkpoint is not whole", path.string());
  if (type != std::filesystem::file_type::regular)
    fail_damaged("checkpoint", "{} is not a regular file", path.string());
}

}  // namespace

struct CheckpointReader::Impl {
  std::filesystem::path dir;
  Manifest manifest;
  std::map<std::string, std::vector<Source>> sources;  // by TENSOR/STATE
  std::map<std::string, const TensorInfo*> tensors;
  std::vector<std::byte> buffer = std::vector<std::byte>(kBufferBytes);
  File file;  // the one that was read last
  size_t file_index = 0;

  void load_headers();
  void check_pieces();
  std::vector<Source>& find(const std::string& tensor, const std::string& state);

  const File& open(size_t index) {
    if (!file.is_open() || file_index != index) {
      file = File::open(dir / manifest.files[index].name);
      file_index = index;
    }
    return file;
  }

  // Fills the buffer with elements [begin, end) of the source.
  void fill(const Source& source, int64_t begin, int64_t end) {
    const int64_t size = dtype_size(source.piece.dtype);
    open(source.file)
        .read_at(buffer.data(), (end - begin) * size, source.piece.file_offset + begin * size);
  }

  // Hashes the next part, at most up to element `limit`. The part stays in the buffer.
  void hash_next(Source& source, int64_t limit) {
    const int64_t size = dtype_size(source.piece.dtype);
    const int64_t end = std::min(limit, source.hashed + kBufferBytes / size);
    fill(source, source.hashed, end);
    if (!source.hash) source.hash.emplace();
    source.hash->update(buffer.data(), static_cast<size_t>((end - source.hashed) * size));
    source.hashed = end;
    if (end < source.piece.slice.numel()) return;
    if (const std::string found = source.hash->hex(); found != source.piece.xxh3)
      fail_checksum(dir / manifest.files[source.file].name, source.piece, found);
    source.hash.reset();
    source.verified = true;
  }

  void hash_rest(Source& source) {
    while (!source.verified) hash_next(source, source.piece.slice.numel());
  }

  // Copies what the source and the wanted slice share. `to` is the memory of the wanted slice.
  // Returns how many of the values are beyond the range of `dtype`.
  int64_t copy_shared(Source& source, const BoxSlice& wanted, Dtype dtype, std::byte* to) {
    const auto span = shared_span(source.piece.slice, wanted);
    if (!span) return 0;
    int64_t beyond = 0;
    const int64_t from_size = dtype_size(source.piece.dtype), to_size = dtype_size(dtype);
    int64_t low = 0, high = 0;  // elements of the source that are in the buffer
    for_each_shared_run(source.piece.slice, wanted, [&](const SharedRun& run) {
      for (int64_t done = 0; done < run.numel;) {
        const int64_t at = run.a_pos + done;
        while (at >= high || at < low) {
          if (!source.verified && at >= source.hashed) {
            low = source.hashed;
            hash_next(source, span->second);
            high = source.hashed;
          } else {
            low = at;
            high = std::min(span->second, at + kBufferBytes / from_size);
            fill(source, low, high);
          }
        }
        const int64_t part = std::min(run.numel - done, high - at);
        beyond += convert_elements(buffer.data() + (at - low) * from_size, source.piece.dtype,
                                   to + (run.b_pos + done) * to_size, dtype, part);
        done += part;
      }
    });
    return beyond;
  }

  // UserError if `beyond`, the number of values that would become infinite in `dtype`, is not 0.
  void check_range(const std::string& tensor, const std::string& state, int64_t beyond,
                   int64_t numel, Dtype dtype) const {
    if (beyond == 0) return;
    fail_user("checkpoint", "{}: tensor '{}', state '{}': {}; choose a dtype that holds them",
              dir.string(), tensor, state, beyond_range(beyond, numel, dtype));
  }
};

void CheckpointReader::Impl::load_headers() {
  for (const TensorInfo& tensor : manifest.tensors) {
    tensors[tensor.name] = &tensor;
    for (const std::string& state : manifest.states_of(tensor))
      sources[piece_key(tensor.name, state)];
  }
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    check_present(dir / manifest.files[i].name);
    for (StoredPiece& piece : read_rank_file(dir, manifest.files[i])) {
      const auto found = sources.find(piece.key);
      if (found == sources.end())
        fail_damaged("checkpoint", "{}: piece '{}' belongs to no tensor and state of the manifest",
                     (dir / manifest.files[i].name).string(), piece.key);
      Source source;
      source.verified = piece.slice.numel() == 0;
      source.piece = std::move(piece);
      source.file = i;
      found->second.push_back(std::move(source));
    }
  }
}

void CheckpointReader::Impl::check_pieces() {
  for (const TensorInfo& tensor : manifest.tensors) {
    for (const std::string& state : manifest.states_of(tensor)) {
      const std::string what =
          fmt::format("{}: tensor '{}', state '{}'", dir.string(), tensor.name, state);
      const std::vector<Source>& list = sources[piece_key(tensor.name, state)];
      std::vector<OwnedSlice> slices;
      for (const Source& source : list) {
        if (source.piece.dtype != list.front().piece.dtype)
          fail_damaged("checkpoint", "{}: stored as {} in {} and as {} in {}", what,
                       dtype_name(list.front().piece.dtype), manifest.files[list.front().file].name,
                       dtype_name(source.piece.dtype), manifest.files[source.file].name);
        slices.push_back({&source.piece.slice, &manifest.files[source.file].name});
      }
      check_coverage(what, tensor.shape, std::move(slices));
    }
  }
}

std::vector<Source>& CheckpointReader::Impl::find(const std::string& tensor,
                                                  const std::string& state) {
  const auto found = sources.find(piece_key(tensor, state));
  if (found == sources.end()) {
    const auto info = tensors.find(tensor);
    fail_user("checkpoint", "{} holds no state '{}' of a tensor '{}'; its states are {}",
              dir.string(), state, tensor,
              fmt::join(info == tensors.end() ? manifest.states : manifest.states_of(*info->second),
                        ", "));
  }
  return found->second;
}

CheckpointReader::CheckpointReader(const std::filesystem::path& step_dir)
    : impl_(std::make_unique<Impl>()) {
  impl_->dir = step_dir;
  if (type_of(step_dir) == std::filesystem::file_type::not_found)
    fail_user("checkpoint",
              "{} does not exist; give the folder of a checkpoint, such as "
              "RUN/checkpoints/step-00000100",
              step_dir.string());
  check_present(step_dir / "manifest.json");
  impl_->manifest = read_manifest(step_dir);
  impl_->load_headers();
  impl_->check_pieces();
}

CheckpointReader::~CheckpointReader() = default;

const Manifest& CheckpointReader::manifest() const {
  return impl_->manifest;
}

Dtype CheckpointReader::stored_dtype(const std::string& tensor, const std::string& state) const {
  const std::vector<Source>& sources = impl_->find(tensor, state);
  return sources.empty() ? Dtype::kF32 : sources.front().piece.dtype;
}

void CheckpointReader::read(const Piece& piece) {
  std::vector<Source>& sources = impl_->find(piece.tensor, piece.state);
  const std::vector<int64_t>& shape = impl_->tensors.at(piece.tensor)->shape;
  const Box& box = piece.slice.box;
  bool inside = box.shape.size() == shape.size() && box.offset.size() == shape.size();
  for (size_t d = 0; inside && d < shape.size(); ++d)
    inside = box.offset[d] >= 0 && box.shape[d] >= 0 && box.offset[d] + box.shape[d] <= shape[d];
  if (!inside || piece.slice.begin < 0 || piece.slice.begin > piece.slice.end ||
      piece.slice.end > box.numel())
    fail_user("checkpoint",
              "tensor '{}' has the shape [{}] in {}; elements {} to {} of the box at [{}] of shape "
              "[{}] are wanted",
              piece.tensor, fmt::join(shape, ", "), impl_->dir.string(), piece.slice.begin,
              piece.slice.end, fmt::join(box.offset, ", "), fmt::join(box.shape, ", "));
  int64_t beyond = 0;
  for (Source& source : sources) {
    if (!shared_span(source.piece.slice, piece.slice)) continue;
    beyond += impl_->copy_shared(source, piece.slice, piece.dtype, piece.data);
    impl_->hash_rest(source);
  }
  impl_->check_range(piece.tensor, piece.state, beyond, piece.slice.numel(), piece.dtype);
}

void CheckpointReader::stream(
    const std::string& tensor, const std::string& state, Dtype dtype,
    const std::function<void(const std::byte* data, int64_t bytes)>& sink) {
  std::vector<Source>& sources = impl_->find(tensor, state);
  BoxSlice part{whole_box(impl_->tensors.at(tensor)->shape), 0, 0};
  const int64_t numel = part.box.numel();
  const int64_t step = kStreamBytes / dtype_size(dtype);
  std::vector<std::byte> data(static_cast<size_t>(std::min(step, numel) * dtype_size(dtype)));
  int64_t beyond = 0;
  for (; part.begin < numel; part.begin = part.end) {
    part.end = std::min(numel, part.begin + step);
    for (Source& source : sources) beyond += impl_->copy_shared(source, part, dtype, data.data());
    sink(data.data(), part.numel() * dtype_size(dtype));
  }
  for (Source& source : sources) impl_->hash_rest(source);
  impl_->check_range(tensor, state, beyond, numel, dtype);
}

void CheckpointReader::verify() {
  for (const ManifestFile& file : impl_->manifest.files) verify_rank_file(impl_->dir, file);
}

}  // namespace tessera
