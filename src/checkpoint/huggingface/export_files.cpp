#include "checkpoint/huggingface/export_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/files/files.h"
#include "base/process/share_out.h"
#include "base/version.h"
#include "checkpoint/huggingface/column_writer.h"
#include "checkpoint/huggingface/replaceable.h"
#include "checkpoint/store/fill_files.h"
#include "checkpoint/store/reader.h"
#include "safetensors/format.h"

namespace tessera {
namespace {

constexpr const char* kEnding = ".safetensors";
constexpr const char* kIndexEnding = ".safetensors.index.json";

// A file that several threads fill. The first of them makes it, the last syncs and closes it, so
// that no more are open than are being filled.
class SharedFile {
 public:
  SharedFile(std::filesystem::path path, std::vector<TensorSpec> specs)
      : path_(std::move(path)), specs_(std::move(specs)) {}

  void add_item() { ++left_; }

  SafetensorsWriter& writer() {
    std::call_once(begun_, [this] {
      const std::map<std::string, std::string> metadata{{"format", "pt"},
                                                        {kWrittenBy, program_version()}};
      writer_ = std::make_unique<SafetensorsWriter>(path_, specs_, metadata);
    });
    return *writer_;
  }

  void item_done() {
    if (--left_ > 0) return;
    writer_->finish();
    writer_.reset();
  }

 private:
  const std::filesystem::path path_;
  const std::vector<TensorSpec> specs_;
  std::once_flag begun_;
  std::unique_ptr<SafetensorsWriter> writer_;
  std::atomic<int> left_{0};  // items that are not done
};

// One of our tensors on its way into a file: what a thread does at a time.
struct Item {
  SharedFile* file;
  size_t tensor;  // number in the file
  const ExportTensor* to;
  const std::string* part;
  int64_t row;  // where its rows begin among those of `to`
};

struct Plan {
  std::deque<SharedFile> files;
  std::vector<Item> items;
  int64_t bytes = 0;
};

// Shares the tensors of one set out to files and adds their items. Writes the index, if one is
// wanted.
void plan_files(const Manifest& manifest, const ExportFiles& set, int64_t max_file_bytes,
                Plan& plan) {
  std::map<std::string, int64_t> rows;  // of our tensors that have any
  for (const TensorInfo& info : manifest.tensors)
    if (!info.shape.empty()) rows[info.name] = info.shape[0];

  std::vector<int64_t> sizes;
  for (const ExportTensor& tensor : set.tensors) sizes.push_back(tensor.bytes());
  const std::vector<size_t> ends = fill_files(sizes, max_file_bytes);
  nlohmann::ordered_json index;
  int64_t total = 0;
  size_t next = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const std::string name = ends.size() == 1 ? set.stem + kEnding
                                              : fmt::format("{}-{:05}-of-{:05}{}", set.stem, i + 1,
                                                            ends.size(), kEnding);
    std::vector<TensorSpec> specs;
    for (size_t k = next; k < ends[i]; ++k) specs.push_back(set.tensors[k].spec);
    SharedFile& file = plan.files.emplace_back(set.folder / name, std::move(specs));
    const auto first_item = std::ssize(plan.items);
    for (size_t first = next; next < ends[i]; ++next) {
      const ExportTensor& tensor = set.tensors[next];
      int64_t row = 0;
      for (const std::string& part : tensor.parts) {
        plan.items.push_back({&file, next - first, &tensor, &part, row});
        file.add_item();
        row += rows[part];
      }
      total += sizes[next];
      index["weight_map"][tensor.spec.name] = name;
    }
    // The largest first, lest one thread is left with it at the end while the others have nothing.
    std::stable_sort(plan.items.begin() + first_item, plan.items.end(),
                     [](const Item& a, const Item& b) { return a.to->bytes() > b.to->bytes(); });
  }
  plan.bytes += total;
  if (ends.size() < 2) return;
  index["metadata"]["total_size"] = total;
  write_file_atomic(set.folder / export_index_name(set.stem), index.dump(2) + "\n");
}

void write_item(CheckpointReader& reader, const Item& item, ByteProgress& progress) {
  const TensorSpec& spec = item.to->spec;
  SafetensorsWriter& writer = item.file->writer();
  if (item.to->transposed) {
    ColumnWriter columns(writer, item.tensor, spec, item.row);
    reader.stream(*item.part, item.to->state, spec.dtype,
                  [&](const std::byte* data, int64_t bytes) {
                    columns.append(data, bytes);
                    progress.add(bytes);
                  });
    columns.finish();
  } else {
    const int64_t rows = spec.shape.empty() ? 1 : spec.shape[0];
    int64_t at = rows == 0 ? 0 : item.to->bytes() / rows * item.row;
    reader.stream(*item.part, item.to->state, spec.dtype,
                  [&](const std::byte* data, int64_t bytes) {
                    writer.write(item.tensor, at, data, bytes);
                    at += bytes;
                    progress.add(bytes);
                  });
  }
  item.file->item_done();
}

}  // namespace

int64_t ExportTensor::bytes() const {
  return checked_numel(spec.shape, spec.dtype) * dtype_size(spec.dtype);
}

void write_export_files(const std::shared_ptr<const StoredCheckpoint>& checkpoint,
                        const std::vector<ExportFiles>& exports, int64_t max_file_bytes,
                        const ToolOptions& tool) {
  Plan plan;
  for (const ExportFiles& set : exports)
    plan_files(checkpoint->manifest(), set, max_file_bytes, plan);
  ByteProgress progress(plan.bytes, tool.progress);
  share_out(plan.items.size(), tool.threads, [&]() -> Worker {
    const auto reader = std::make_shared<CheckpointReader>(checkpoint);
    return [&, reader](size_t i) { write_item(*reader, plan.items[i], progress); };
  });
}

bool is_export_file(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || !name.ends_with(kEnding)) return false;
  name.remove_prefix(stem.size());
  name.remove_suffix(std::string_view(kEnding).size());
  if (name.empty()) return true;
  // -00001-of-00002
  const size_t of = name.find("-of-");
  const auto is_number = [](std::string_view text) {
    return text.size() >= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return of != std::string_view::npos && name[0] == '-' && is_number(name.substr(1, of - 1)) &&
         is_number(name.substr(of + 4));
}

std::string export_index_name(std::string_view stem) {
  return std::string(stem) + kIndexEnding;
}

}  // namespace tessera
