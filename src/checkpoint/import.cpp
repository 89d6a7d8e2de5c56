#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/convert.h"
#include "checkpoint/elements.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/pieces.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/whole_folder.h"

namespace tessera {
namespace {

using Tensor = HuggingFaceFolder::Tensor;

constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr int64_t kMaxFileBytes = int64_t{4} << 30;  // a larger model gets several files

// Old checkpoints store the rotary frequencies, which follow from the configuration.
bool is_rotary_buffer(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq");
}

// Gives `sink` a tensor's bytes as they are stored, a chunk at a time.
template <typename Sink>
void for_each_chunk(const File& file, const Tensor& tensor, Sink sink) {
  const int64_t size = dtype_size(tensor.entry.dtype);
  const int64_t numel = (tensor.entry.end - tensor.entry.begin) / size;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kChunkElements, numel) * size));
  for (int64_t done = 0; done < numel; done += kChunkElements) {
    const int64_t part = std::min(kChunkElements, numel - done);
    file.read_at(buffer.data(), part * size, tensor.file_offset + done * size);
    sink(buffer.data(), done, part);
  }
}

// A tied model's file may hold the head as well. It is dropped, but only if it is the embedding.
void drop_tied_head(HuggingFaceFolder& folder) {
  const auto find = [&](const char* name) {
    return std::find_if(folder.tensors.begin(), folder.tensors.end(),
                        [&](const Tensor& tensor) { return tensor.entry.name == name; });
  };
  const auto head = find("lm_head.weight"), embedding = find("model.embed_tokens.weight");
  if (!is_tied(folder.config) || head == folder.tensors.end() || embedding == folder.tensors.end())
    return;
  bool same =
      head->entry.shape == embedding->entry.shape && head->entry.dtype == embedding->entry.dtype;
  if (same) {
    const File other = File::open(folder.files[embedding->file]);
    const int64_t size = dtype_size(head->entry.dtype);
    std::vector<std::byte> expected(static_cast<size_t>(kChunkElements * size));
    for_each_chunk(
        File::open(folder.files[head->file]), *head,
        [&](const std::byte* data, int64_t at, int64_t numel) {
          other.read_at(expected.data(), numel * size, embedding->file_offset + at * size);
          same = same && std::memcmp(data, expected.data(), static_cast<size_t>(numel * size)) == 0;
        });
  }
  if (!same)
    fail_user("import",
              "config.json says tie_word_embeddings: true, but lm_head.weight in {} is not the "
              "embedding; set it to false or remove the head",
              folder.files[head->file].string());
  folder.tensors.erase(head);
}

StoredPiece whole_piece(const TensorEntry& entry) {
  StoredPiece piece;
  piece.key = piece_key(entry.name, kStateParam);
  piece.slice.box = whole_box(entry.shape);
  piece.slice.end = piece.slice.box.numel();
  return piece;
}

ManifestFile write_file(const HuggingFaceFolder& folder, const Tensor* first, const Tensor* last,
                        const std::filesystem::path& path) {
  std::vector<StoredPiece> pieces;
  for (const Tensor* tensor = first; tensor != last; ++tensor)
    pieces.push_back(whole_piece(tensor->entry));
  RankFileWriter writer(path, std::move(pieces));
  std::vector<std::byte> converted(kChunkElements * sizeof(float));
  File source;
  size_t open_file = 0;
  for (const Tensor* tensor = first; tensor != last; ++tensor) {
    if (!source.is_open() || open_file != tensor->file)
      source = File::open(folder.files[tensor->file]);
    open_file = tensor->file;
    for_each_chunk(source, *tensor, [&](const std::byte* data, int64_t, int64_t numel) {
      convert_elements(data, tensor->entry.dtype, converted.data(), Dtype::kF32, numel);
      writer.append(converted.data(), numel * dtype_size(Dtype::kF32));
    });
  }
  return writer.finish();
}

}  // namespace

void import_hugging_face(const std::filesystem::path& hf_dir, const std::filesystem::path& step_dir,
                         const std::function<void(const Manifest&)>& check) {
  HuggingFaceFolder folder = open_hugging_face(hf_dir);
  std::erase_if(folder.tensors,
                [](const Tensor& tensor) { return is_rotary_buffer(tensor.entry.name); });
  drop_tied_head(folder);
  for (const Tensor& tensor : folder.tensors) {
    if (!can_convert(tensor.entry.dtype, Dtype::kF32))
      fail_user("import", "{}: tensor '{}' is {}; weights must be F32, F64, BF16 or F16",
                folder.files[tensor.file].string(), tensor.entry.name,
                dtype_name(tensor.entry.dtype));
    if (checked_numel(tensor.entry.shape, Dtype::kF64) < 0)
      fail_user("import", "{}: tensor '{}' is too large", folder.files[tensor.file].string(),
                tensor.entry.name);
  }
  if (folder.tensors.empty()) fail_user("import", "{} holds no tensors", hf_dir.string());

  Manifest manifest;
  manifest.states = {kStateParam};
  manifest.model = folder.config;
  manifest.mesh = {{"dp_replicate", 1}, {"dp_shard", 1}, {"tp", 1}};
  manifest.writer = "tessera import";
  for (const Tensor& tensor : folder.tensors)
    manifest.tensors.push_back({tensor.entry.name, tensor.entry.shape});
  check(manifest);

  WholeFolder output(step_dir);
  const Tensor* const end = folder.tensors.data() + folder.tensors.size();
  for (const Tensor* first = folder.tensors.data(); first != end;) {
    int64_t bytes = 0;
    const Tensor* last = first;
    for (; last != end; ++last) {
      const int64_t more = whole_piece(last->entry).bytes();
      if (last != first && more > kMaxFileBytes - bytes) break;
      bytes += more;
    }
    const auto number = static_cast<int>(manifest.files.size());
    manifest.files.push_back(
        write_file(folder, first, last, output.partial() / rank_file_name(number)));
    first = last;
  }
  write_manifest(output.partial(), manifest);
  output.publish();
}

}  // namespace tessera
