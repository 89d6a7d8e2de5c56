#include "checkpoint/huggingface/import.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/huggingface/hf_names.h"
#include "checkpoint/huggingface/hugging_face.h"
#include "checkpoint/store/whole_folder.h"
#include "safetensors/format.h"

namespace tessera {
namespace {

using Tensor = HuggingFaceFolder::Tensor;

constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr int64_t kMaxFileBytes = int64_t{4} << 30;  // a larger model gets several files

// Where the data of one of our tensors lies: rows of a file's tensor, or columns of one that is
// stored transposed.
struct Source {
  TensorInfo info;
  Tensor stored;
  bool transposed = false;
  int64_t begin = 0;  // the first row (transposed: column) of the stored tensor
};

// Gives `sink` a tensor's bytes as they are stored, a chunk at a time.
template <typename Sink>
void for_each_chunk(const File& file, const Tensor& tensor, Sink sink) {
  const int64_t size = dtype_size(tensor.entry.dtype);
  const int64_t numel = (tensor.entry.end - tensor.entry.begin) / size;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kChunkElements, numel) * size));
  for (int64_t done = 0; done < numel; done += kChunkElements) {
    const int64_t part = std::min(kChunkElements, numel - done);
    reading_source(
        [&] { file.read_at(buffer.data(), part * size, tensor.file_offset + done * size); });
    sink(buffer.data(), done, part);
  }
}

File open_source(const std::filesystem::path& path) {
  return reading_source([&] { return File::open(path); });
}

// The files of a tied model may hold the head beside the embedding. Then the head is dropped;
// UserError if the two differ. If they hold only the head, that is the embedding.
void take_tied_head(HuggingFaceFolder& folder, const HfTensors::Tied& tied) {
  const auto find = [&](const std::string& name) {
    return std::find_if(folder.tensors.begin(), folder.tensors.end(),
                        [&](const Tensor& tensor) { return tensor.entry.name == name; });
  };
  const auto head = find(tied.head), embedding = find(tied.embedding);
  if (head == folder.tensors.end()) return;
  if (embedding == folder.tensors.end()) {
    head->entry.name = tied.embedding;
    return;
  }
  bool same =
      head->entry.shape == embedding->entry.shape && head->entry.dtype == embedding->entry.dtype;
  if (same) {
    const File other = open_source(folder.files[embedding->file]);
    const int64_t size = dtype_size(head->entry.dtype);
    std::vector<std::byte> expected(static_cast<size_t>(kChunkElements * size));
    for_each_chunk(
        open_source(folder.files[head->file]), *head,
        [&](const std::byte* data, int64_t at, int64_t numel) {
          reading_source([&] {
            other.read_at(expected.data(), numel * size, embedding->file_offset + at * size);
          });
          same = same && std::memcmp(data, expected.data(), static_cast<size_t>(numel * size)) == 0;
        });
  }
  if (!same)
    fail_user(
        "import",
        "config.json says tie_word_embeddings: true, but {} in {} is not the embedding {}; set "
        "it to false or remove the head",
        tied.head, folder.files[head->file].string(), tied.embedding);
  folder.tensors.erase(head);
}

// Adds the sources of our tensors that one stored tensor holds; the model says how many rows each
// has.
void add_parts(const HuggingFaceFolder& folder, const Tensor& tensor, const HfTensor& rule,
               const std::vector<TensorInfo>& parameters, std::vector<Source>& sources) {
  const std::vector<int64_t>& shape = tensor.entry.shape;
  int64_t row = 0;
  for (const std::string& name : rule.parts) {
    const auto info = std::find_if(parameters.begin(), parameters.end(),
                                   [&](const TensorInfo& p) { return p.name == name; });
    if (info == parameters.end()) fail("import", "{}: the model has no {}", rule.name, name);
    sources.push_back({*info, tensor, rule.transposed, row});
    row += info->shape[0];
  }
  std::vector<int64_t> expected = sources.back().info.shape;
  expected[0] = row;
  if (rule.transposed) std::reverse(expected.begin(), expected.end());
  if (shape != expected)
    fail_user("import", "{}: tensor '{}' has the shape [{}]; config.json makes it [{}]",
              folder.files[tensor.file].string(), rule.name, fmt::join(shape, ", "),
              fmt::join(expected, ", "));
}

std::vector<Source> plan_sources(const HuggingFaceFolder& folder, const HfModel& model) {
  std::vector<Source> sources;
  for (const Tensor& tensor : folder.tensors) {
    const std::string file = folder.files[tensor.file].string();
    if (!can_convert(tensor.entry.dtype, Dtype::kF32))
      fail_user("import", "{}: tensor '{}' is {}; weights must be F32, F64, BF16 or F16", file,
                tensor.entry.name, dtype_name(tensor.entry.dtype));
    if (checked_numel(tensor.entry.shape, Dtype::kF64) < 0)
      fail_user("import", "{}: tensor '{}' is too large", file, tensor.entry.name);
    const auto& rules = model.tensors.tensors;
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const HfTensor& other) {
      return other.name == tensor.entry.name;
    });
    if (rule != rules.end()) {
      add_parts(folder, tensor, *rule, model.parameters, sources);
    } else {
      sources.push_back({{tensor.entry.name, tensor.entry.shape}, tensor});
    }
  }
  return sources;
}

FilePiece whole_piece(const TensorInfo& info) {
  const Box box = whole_box(info.shape);
  return {info.name, kStateParam, {box, 0, box.numel()}};
}

// UserError if values became infinite in fp32, which can only happen to those of F64.
void check_range(const File& file, const Source& source, int64_t beyond, int64_t numel) {
  if (beyond == 0) return;
  fail_user("import", "{}: tensor '{}': {}; weights are kept in fp32", file.path().string(),
            source.stored.entry.name, beyond_range(beyond, numel, Dtype::kF32));
}

// Writes the source's rows of the stored tensor, a chunk at a time, in fp32.
void stream_rows(const File& file, const Source& source, RankFileWriter& writer) {
  const Dtype dtype = source.stored.entry.dtype;
  const int64_t rows = source.stored.entry.shape.empty() ? 1 : source.stored.entry.shape[0];
  const int64_t row_bytes =
      rows == 0 ? 0 : (source.stored.entry.end - source.stored.entry.begin) / rows;
  Tensor part = source.stored;
  part.file_offset += source.begin * row_bytes;
  part.entry.begin = 0;
  part.entry.end = whole_box(source.info.shape).numel() * dtype_size(dtype);
  std::vector<std::byte> converted(kChunkElements * sizeof(float));
  int64_t beyond = 0;
  for_each_chunk(file, part, [&](const std::byte* data, int64_t, int64_t numel) {
    beyond += convert_elements(data, dtype, converted.data(), Dtype::kF32, numel);
    writer.append(converted.data(), numel * dtype_size(Dtype::kF32));
  });
  check_range(file, source, beyond, whole_box(source.info.shape).numel());
}

// Writes the source's columns of the stored matrix as rows, in fp32.
void stream_columns(const File& file, const Source& source, RankFileWriter& writer) {
  std::vector<float> stored(static_cast<size_t>(whole_box(source.stored.entry.shape).numel()));
  const int64_t rows = source.stored.entry.shape[0], columns = source.stored.entry.shape[1];
  int64_t beyond = 0;
  for_each_chunk(file, source.stored, [&](const std::byte* data, int64_t at, int64_t numel) {
    beyond +=
        convert_elements(data, source.stored.entry.dtype,
                         reinterpret_cast<std::byte*>(stored.data() + at), Dtype::kF32, numel);
  });
  check_range(file, source, beyond, rows * columns);
  std::vector<float> row(static_cast<size_t>(rows));
  for (int64_t c = source.begin; c < source.begin + source.info.shape[0]; ++c) {
    for (int64_t r = 0; r < rows; ++r)
      row[static_cast<size_t>(r)] = stored[static_cast<size_t>(r * columns + c)];
    writer.append(reinterpret_cast<const std::byte*>(row.data()),
                  rows * static_cast<int64_t>(sizeof(float)));
  }
}

// Returns WrittenFile::to_text().
std::string write_file(const HuggingFaceFolder& folder, const Source* first, const Source* last,
                       const Manifest& manifest, const std::filesystem::path& path) {
  std::vector<FilePiece> pieces;
  for (const Source* source = first; source != last; ++source)
    pieces.push_back(whole_piece(source->info));
  RankFileWriter writer(path, manifest, pieces);
  File file;
  size_t open_file = 0;
  for (const Source* source = first; source != last; ++source) {
    if (!file.is_open() || open_file != source->stored.file)
      file = open_source(folder.files[source->stored.file]);
    open_file = source->stored.file;
    if (source->transposed)
      stream_columns(file, *source, writer);
    else
      stream_rows(file, *source, writer);
  }
  return writer.finish().to_text();
}

}  // namespace

std::vector<std::string> import_hugging_face(
    const std::filesystem::path& hf_dir, const std::filesystem::path& step_dir,
    const std::function<HfModel(const nlohmann::json& config)>& recognize) {
  nlohmann::json config = read_hugging_face_config(hf_dir);
  const HfModel model = recognize(config);
  HuggingFaceFolder folder = open_hugging_face(hf_dir, std::move(config), model.tensors);
  reading_source([&] { check_hf_files(hf_dir); });
  take_names(folder, model);
  if (model.tensors.tied) take_tied_head(folder, *model.tensors.tied);
  if (folder.tensors.empty()) fail_user("import", "{} holds no tensors", hf_dir.string());
  if (has_own_code(folder.config))
    folder.notes.push_back(fmt::format(
        "{} names code of its own (auto_map), which is not run: the model is what transformers "
        "computes without it",
        (hf_dir / "config.json").string()));
  const std::vector<Source> sources = plan_sources(folder, model);

  Manifest manifest;
  manifest.states = {kStateParam};
  manifest.model = folder.config;
  manifest.mesh = {{"dp_replicate", 1}, {"dp_shard", 1}, {"tp", 1}};
  manifest.writer = "tessera import";
  for (const Source& source : sources) manifest.tensors.push_back(source.info);
  if (!model.parameters.empty()) check_tensors(manifest, model.parameters);

  WholeFolder output(step_dir);
  std::vector<std::string> written;
  const Source* const end = sources.data() + sources.size();
  for (const Source* first = sources.data(); first != end;) {
    int64_t bytes = 0;
    const Source* last = first;
    for (; last != end; ++last) {
      const int64_t more = whole_piece(last->info).bytes();
      if (last != first && more > kMaxFileBytes - bytes) break;
      bytes += more;
    }
    const auto number = static_cast<int>(written.size());
    written.push_back(
        write_file(folder, first, last, manifest, output.partial() / rank_file_name(number)));
    first = last;
  }
  write_piece_index(output.partial(), written, manifest);
  copy_hf_files(hf_dir, output.partial() / kHfFilesFolder);
  write_manifest(output.partial(), manifest);
  output.publish();
  folder.notes.insert(folder.notes.end(), output.lacks().begin(), output.lacks().end());
  return folder.notes;
}

}  // namespace tessera
