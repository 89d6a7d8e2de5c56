#include "checkpoint/huggingface/hf_source.h"

// What is wanted of one of our tensors is a set of runs of the stored one. They are read through a
// buffer in windows: from the first run that is not there yet over as many further ones as fit,
// also over the gaps between them, unless a gap is so long that skipping it is quicker.
//
// A row of ours is a column of a matrix that is stored transposed: there each of our columns is one
// run, which goes to places a row's width apart. No matrix is ever held as it is stored; but a
// piece of few rows takes a little of every stored row, so whoever wants all of such a matrix asks
// for it at once.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/xxh3.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/huggingface/hf_files.h"

namespace tessera {
namespace {

using Tensor = HuggingFaceFolder::Tensor;

constexpr int64_t kBufferBytes = int64_t{4} << 20;
constexpr int64_t kGapBytes = int64_t{64} << 10;  // shorter ones are read over

// The smallest integer of at least a / b, 0 for a below 0.
int64_t ceil_div(int64_t a, int64_t b) {
  return a <= 0 ? 0 : (a - 1) / b + 1;
}

File open_source(const std::filesystem::path& path) {
  return reading_source([&] { return File::open(path); });
}

// Blocks of a file's bytes at fixed fractions of it, the first at its start and the last at its
// end.
void add_samples(Xxh3& hash, const File& file) {
  constexpr int64_t kBlocks = 4, kBlockBytes = int64_t{64} << 10;
  const int64_t size = file.size(), bytes = std::min(size, kBlockBytes);
  std::vector<std::byte> block(static_cast<size_t>(bytes));
  hash.update(&size, sizeof size);
  for (int64_t i = 0; i < kBlocks; ++i) {
    file.read_at(block.data(), bytes, (size - bytes) / (kBlocks - 1) * i);
    hash.update(block.data(), block.size());
  }
}

}  // namespace

HuggingFaceSource::HuggingFaceSource(const std::filesystem::path& dir, nlohmann::json config,
                                     const HfModel& model)
    : plan_(plan_hugging_face(dir, std::move(config), model)) {
  reading_source([&] { check_hf_files(dir); });
  for (const HfPart& part : plan_.parts) by_name_[part.info.name] = &part;
}

std::string HuggingFaceSource::id() const {
  const HuggingFaceFolder& folder = plan_.folder;
  Xxh3 hash;
  const std::string text = folder.config.dump();
  hash.update(text.data(), text.size());
  reading_source([&] {
    for (size_t i = 0; i < folder.files.size(); ++i) {
      hash.update(folder.headers[i].data(), folder.headers[i].size());
      add_samples(hash, File::open(folder.files[i]));
    }
  });
  return hash.hex();
}

void HuggingFaceSource::check_tied_head(int part, int parts) const {
  if (!plan_.tied) return;
  const auto& [head, embedding] = *plan_.tied;
  bool same =
      head.entry.shape == embedding.entry.shape && head.entry.dtype == embedding.entry.dtype;
  if (same) {
    const File one = open_source(plan_.folder.files[head.file]);
    const File other = open_source(plan_.folder.files[embedding.file]);
    const int64_t each = ceil_div(head.entry.end - head.entry.begin, parts);
    const int64_t end = std::min(head.entry.end - head.entry.begin, each * (part + 1));
    std::vector<std::byte> a(static_cast<size_t>(std::min(each, kBufferBytes))), b(a.size());
    for (int64_t at = each * part; same && at < end;) {
      const int64_t bytes = std::min(end - at, static_cast<int64_t>(a.size()));
      reading_source([&] {
        one.read_at(a.data(), bytes, head.file_offset + at);
        other.read_at(b.data(), bytes, embedding.file_offset + at);
      });
      same = std::memcmp(a.data(), b.data(), static_cast<size_t>(bytes)) == 0;
      at += bytes;
    }
  }
  if (!same)
    fail_user("import",
              "config.json says tie_word_embeddings: true, but {} in {} is not the embedding {}; "
              "set it to false or remove the head",
              head.entry.name, plan_.folder.files[head.file].string(), embedding.entry.name);
}

std::vector<HuggingFaceSource::Run> HuggingFaceSource::runs_of(const HfPart& part,
                                                               const BoxSlice& slice) {
  std::vector<Run> runs;
  const std::vector<int64_t>& shape = part.info.shape;
  const BoxSlice whole{whole_box(shape), 0, whole_box(shape).numel()};
  if (!part.transposed) {
    const int64_t first = part.begin == 0 ? 0 : part.begin * (whole.end / shape[0]);
    for_each_shared_run(whole, slice, [&](const SharedRun& run) {
      runs.push_back({.at = first + run.a_pos, .numel = run.numel, .to = run.b_pos});
    });
    return runs;
  }
  for (size_t d = 0; d < 2; ++d)
    if (slice.box.offset[d] < 0 || slice.box.offset[d] + slice.box.shape[d] > shape[d]) return {};
  const int64_t width = slice.box.shape[1], stored_width = part.stored.entry.shape[1];
  for (int64_t column = 0; column < width; ++column) {
    const int64_t first = ceil_div(slice.begin - column, width);
    const int64_t last = ceil_div(slice.end - column, width);
    if (first == last) continue;
    runs.push_back({.at = (slice.box.offset[1] + column) * stored_width + part.begin +
                          slice.box.offset[0] + first,
                    .numel = last - first,
                    .to = first * width + column - slice.begin,
                    .stride = width});
  }
  return runs;
}

const File& HuggingFaceSource::open(size_t file) {
  if (!file_.is_open() || file_index_ != file) {
    file_ = open_source(plan_.folder.files[file]);
    file_index_ = file;
  }
  return file_;
}

// Returns how many of the values are beyond the range of the piece's dtype.
int64_t HuggingFaceSource::read_runs(const HfPart& part, const std::vector<Run>& runs,
                                     const Piece& piece) {
  const Tensor& stored = part.stored;
  const int64_t from_size = dtype_size(stored.entry.dtype), to_size = dtype_size(piece.dtype);
  const int64_t most = kBufferBytes / from_size;
  std::vector<std::byte> buffer, line;  // line: a part of a run that does not stay together
  int64_t low = 0, high = 0;            // elements of the stored tensor that are in the buffer
  const auto fill = [&](size_t i, int64_t at) {
    low = at;
    high = std::min(runs[i].at + runs[i].numel, at + most);
    for (size_t next = i + 1; next < runs.size(); ++next) {
      if ((runs[next].at - high) * from_size > kGapBytes || runs[next].at >= at + most) break;
      high = std::min(runs[next].at + runs[next].numel, at + most);
    }
    buffer.resize(static_cast<size_t>((high - low) * from_size));
    reading_source([&] {
      open(stored.file)
          .read_at(buffer.data(), (high - low) * from_size, stored.file_offset + low * from_size);
    });
  };
  int64_t beyond = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    for (int64_t done = 0; done < run.numel;) {
      if (run.at + done >= high || run.at + done < low) fill(i, run.at + done);
      const int64_t numel = std::min(run.numel - done, high - (run.at + done));
      const std::byte* from = buffer.data() + (run.at + done - low) * from_size;
      std::byte* to = piece.data + (run.to + done * run.stride) * to_size;
      if (run.stride == 1) {
        beyond += convert_elements(from, stored.entry.dtype, to, piece.dtype, numel);
      } else {
        line.resize(static_cast<size_t>(numel * to_size));
        beyond += convert_elements(from, stored.entry.dtype, line.data(), piece.dtype, numel);
        for (int64_t k = 0; k < numel; ++k)
          std::memcpy(to + k * run.stride * to_size, line.data() + k * to_size,
                      static_cast<size_t>(to_size));
      }
      done += numel;
    }
  }
  return beyond;
}

void HuggingFaceSource::read(const Piece& piece) {
  const auto found = by_name_.find(piece.tensor);
  if (found == by_name_.end() || piece.state != kStateParam)
    fail_user("import",
              "{} holds no state '{}' of a tensor '{}'; a Hugging Face folder has the "
              "weights of its model alone",
              path().string(), piece.state, piece.tensor);
  const HfPart& part = *found->second;
  const std::vector<Run> runs = runs_of(part, piece.slice);
  int64_t numel = 0;
  for (const Run& run : runs) numel += run.numel;
  if (numel != piece.slice.numel())
    fail("import", "tensor '{}': {} elements are wanted, and {} of them are inside it",
         piece.tensor, piece.slice.numel(), numel);
  const int64_t beyond = read_runs(part, runs, piece);
  if (beyond > 0)
    fail_user("import", "{}: tensor '{}': {}; weights are kept in {}",
              plan_.folder.files[part.stored.file].string(), part.stored.entry.name,
              beyond_range(beyond, numel, piece.dtype), dtype_name(piece.dtype));
}

}  // namespace tessera
