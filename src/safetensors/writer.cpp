#include "safetensors/writer.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/xxh3.h"
#include "safetensors/format.h"

namespace tessera {

using nlohmann::json;
using nlohmann::ordered_json;

std::string safetensors_header(const std::string& path, const std::vector<TensorSpec>& specs,
                               const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  try {
    if (!metadata.empty()) text += "\"__metadata__\":" + json(metadata).dump();
    int64_t cursor = 0;
    for (const TensorSpec& spec : specs) {
      const int64_t end = cursor + checked_numel(spec.shape, spec.dtype) * dtype_size(spec.dtype);
      ordered_json entry;
      entry["dtype"] = dtype_name(spec.dtype);
      entry["shape"] = spec.shape;
      entry["data_offsets"] = {cursor, end};
      if (text.size() > 1) text += ",";
      text += json(spec.name).dump() + ":" + entry.dump();
      cursor = end;
    }
  } catch (const json::exception& error) {
    fail("safetensors", "cannot write {}: a name is not UTF-8: {}", path, error.what());
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes)
    fail("safetensors", "cannot write {}: the header has {} bytes, the format allows {}", path,
         text.size(), kMaxHeaderBytes);
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return header + text;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorSpec>& specs,
                                     const std::map<std::string, std::string>& metadata)
    : specs_(specs) {
  std::unordered_set<std::string> names{"__metadata__"};
  for (const TensorSpec& spec : specs) {
    if (spec.name.empty() || spec.name.find('\0') != std::string::npos)
      fail("safetensors", "cannot write {}: a tensor's name is empty or holds NUL", path.string());
    if (!names.insert(spec.name).second)
      fail("safetensors", "cannot write {}: the name '{}' is reserved or given twice",
           path.string(), spec.name);
    const int64_t numel = checked_numel(spec.shape, spec.dtype);
    int64_t bytes = 0;
    if (numel < 0 || __builtin_mul_overflow(numel, dtype_size(spec.dtype), &bytes) ||
        __builtin_add_overflow(data_bytes_, bytes, &data_bytes_))
      fail("safetensors", "cannot write {}: tensor '{}' of shape [{}] is too large", path.string(),
           spec.name, fmt::join(spec.shape, ", "));
  }
  header_ = safetensors_header(path.string(), specs_, metadata);
  file_ = File::create(path);
  file_.write_at(header_.data(), data_begin(), 0);
}

void SafetensorsWriter::append(const void* data, int64_t bytes) {
  if (bytes > data_bytes_ - written_)
    fail("safetensors", "{}: {} bytes of data come after {}, the header has room for {}",
         file_.path().string(), bytes, written_, data_bytes_);
  file_.write_at(data, bytes, data_begin() + written_);
  written_ += bytes;
}

void SafetensorsWriter::finish() {
  if (written_ != data_bytes_)
    fail("safetensors", "{}: {} bytes of data were written, the header says {}",
         file_.path().string(), written_, data_bytes_);
  file_.sync();
  file_.close();
}

std::string SafetensorsWriter::header_xxh3() const {
  return xxh3_hex(header_.data(), header_.size());
}

}  // namespace tessera
