#include "checkpoint/format/manifest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files/files.h"
#include "base/text/json_text.h"
#include "base/xxh3.h"
#include "safetensors/format.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "tessera-checkpoint";
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

// One field of the manifest, or of a row of its tables; errors name the file and the field.
class Field {
 public:
  Field(const json& object, std::string file, std::string where, const char* name)
      : file_(std::move(file)), name_(std::move(where) + name) {
    const auto found = object.find(name);
    if (found == object.end())
      fail_damaged("checkpoint", "{}: field '{}' is missing", file_, name_);
    value_ = &*found;
  }

  const json& any() const { return *value_; }

  int64_t whole_number() const {
    if (!value_->is_number_unsigned() || value_->get<uint64_t>() > uint64_t{INT64_MAX})
      refuse("a whole number from 0 to 2^63 - 1");
    return value_->get<int64_t>();
  }

  uint64_t seed() const {
    if (!value_->is_number_unsigned()) refuse("a whole number from 0 to 2^64 - 1");
    return value_->get<uint64_t>();
  }

  std::string text() const {
    if (!value_->is_string() || value_->get_ref<const std::string&>().empty())
      refuse("a string that is not empty");
    return value_->get<std::string>();
  }

  const json& array() const {
    if (!value_->is_array()) refuse("an array");
    return *value_;
  }

  [[noreturn]] void refuse(const char* rule) const {
    fail_damaged("checkpoint", "{}: field '{}' is {}, the rule is {}", file_, name_,
                 value_->dump().substr(0, 200), rule);
  }

 private:
  std::string file_;
  std::string name_;
  const json* value_ = nullptr;
};

std::vector<std::string> read_states(const Field& field) {
  std::vector<std::string> states;
  std::set<std::string> seen;
  for (const json& state : field.array()) {
    if (!state.is_string() || !is_plain_name(state.get_ref<const std::string&>()) ||
        !seen.insert(state.get<std::string>()).second)
      field.refuse("distinct names without '/'");
    states.push_back(state.get<std::string>());
  }
  if (states.empty()) field.refuse("at least one state");
  return states;
}

// A tensor's own states: some of the manifest's.
std::vector<std::string> read_own_states(const Field& field, const std::vector<std::string>& all) {
  std::vector<std::string> states = read_states(field);
  for (const std::string& state : states) {
    if (std::find(all.begin(), all.end(), state) == all.end())
      field.refuse("some of the manifest's states");
  }
  return states;
}

std::vector<TensorInfo> read_tensors(const json& rows, const std::vector<std::string>& states,
                                     const std::string& file) {
  std::vector<TensorInfo> tensors;
  std::set<std::string> seen;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string where = fmt::format("tensors[{}].", i);
    if (!rows[i].is_object())
      fail_damaged("checkpoint", "{}: tensors[{}] is not an object", file, i);
    TensorInfo tensor;
    const Field name(rows[i], file, where, "name");
    tensor.name = name.text();
    if (tensor.name.find('\0') != std::string::npos) name.refuse("a name without NUL");
    if (!seen.insert(tensor.name).second) name.refuse("a name that is not given twice");
    const Field shape(rows[i], file, where, "shape");
    for (const json& size : shape.array()) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{INT64_MAX} ||
          tensor.shape.size() >= 64)
        shape.refuse("at most 64 sizes from 0 to 2^63 - 1");
      tensor.shape.push_back(size.get<int64_t>());
    }
    if (checked_numel(tensor.shape, Dtype::kF64) < 0)
      shape.refuse("a tensor of less than 2^63 bytes");
    if (rows[i].contains("states"))
      tensor.states = read_own_states(Field(rows[i], file, where, "states"), states);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<ManifestFile> read_files(const json& rows, const std::string& file) {
  std::vector<ManifestFile> files;
  std::set<std::string> seen;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string where = fmt::format("files[{}].", i);
    if (!rows[i].is_object()) fail_damaged("checkpoint", "{}: files[{}] is not an object", file, i);
    ManifestFile entry;
    const Field name(rows[i], file, where, "name");
    entry.name = name.text();
    if (!is_plain_name(entry.name)) name.refuse("a plain file name inside the folder");
    if (!seen.insert(entry.name).second) name.refuse("a name that is not given twice");
    entry.size = Field(rows[i], file, where, "size").whole_number();
    const Field digest(rows[i], file, where, "header_xxh3");
    entry.header_xxh3 = digest.text();
    if (!is_xxh3_hex(entry.header_xxh3)) digest.refuse("16 hex digits");
    files.push_back(std::move(entry));
  }
  return files;
}

ManifestIndex read_index(const json& row, const std::vector<ManifestFile>& files,
                         const std::string& file) {
  if (!row.is_object()) fail_damaged("checkpoint", "{}: index is not an object", file);
  ManifestIndex index;
  const Field name(row, file, "index.", "name");
  index.name = name.text();
  if (!is_plain_name(index.name)) name.refuse("a plain file name inside the folder");
  for (const ManifestFile& other : files)
    if (other.name == index.name) name.refuse("a name that none of the files has");
  index.size = Field(row, file, "index.", "size").whole_number();
  const Field digest(row, file, "index.", "xxh3");
  index.xxh3 = digest.text();
  if (!is_xxh3_hex(index.xxh3)) digest.refuse("16 hex digits");
  return index;
}

// The field `data`, which manifests of older programs lack.
json read_data(const json& root, const std::string& file) {
  if (!root.contains("data")) return nullptr;
  const Field field(root, file, "", "data");
  bool sound = field.any().is_null() || field.any().is_array();
  for (const json& entry : field.any()) sound = sound && entry.is_string();
  if (!sound) field.refuse("null or an array of strings");
  return field.any();
}

json to_json(const Manifest& manifest) {
  json root{{"format", kFormat},
            {"version", kCheckpointFormatVersion},
            {"writer", manifest.writer},
            {"step", manifest.step},
            {"samples", manifest.samples},
            {"tokens", manifest.tokens},
            {"seed", manifest.seed},
            {"states", manifest.states},
            {"mesh", manifest.mesh},
            {"model", manifest.model},
            {"config", manifest.config},
            {"data", manifest.data},
            {"training", manifest.training},
            {"run", manifest.run},
            {"tensors", json::array()},
            {"files", json::array()}};
  if (!manifest.index)
    fail("checkpoint", "the manifest of step {} names no index of pieces", manifest.step);
  root["index"] = {{"name", manifest.index->name},
                   {"size", manifest.index->size},
                   {"xxh3", manifest.index->xxh3}};
  for (const TensorInfo& tensor : manifest.tensors) {
    root["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
    if (!tensor.states.empty()) root["tensors"].back()["states"] = tensor.states;
  }
  for (const ManifestFile& file : manifest.files)
    root["files"].push_back(
        {{"name", file.name}, {"size", file.size}, {"header_xxh3", file.header_xxh3}});
  return root;
}

// The digest of the contents, whatever the layout of the text: of the compact form with sorted keys
// and without the digest itself.
std::string digest_of(json root) {
  root.erase("xxh3");
  const std::string text = root.dump();
  return xxh3_hex(text.data(), text.size());
}

// The text of manifest.json, laid out for people: a line per field, tensor and file.
std::string layout(const json& root) {
  std::string text = "{\n";
  for (const char* key : {"format", "version", "writer", "step", "samples", "tokens", "seed",
                          "mesh", "states", "model", "config", "data", "training", "run", "index"})
    text += fmt::format("  \"{}\": {},\n", key, root[key].dump());
  for (const char* key : {"tensors", "files"}) {
    text += fmt::format("  \"{}\": [", key);
    const char* separator = "\n    ";
    for (const json& row : root[key]) {
      text += separator + row.dump();
      separator = ",\n    ";
    }
    text += "],\n";
  }
  return text + fmt::format("  \"xxh3\": \"{}\"\n}}\n", digest_of(root));
}

}  // namespace

std::string read_manifest_text(const std::filesystem::path& step_dir) {
  return read_small_file(step_dir / "manifest.json", kMaxManifestBytes);
}

Manifest read_manifest(const std::filesystem::path& step_dir) {
  return parse_manifest(read_manifest_text(step_dir), (step_dir / "manifest.json").string());
}

Manifest parse_manifest(const std::string& text, const std::string& file) {
  const json root = parse_json(text, file);
  if (!root.is_object()) fail_damaged("checkpoint", "{}: is not an object", file);
  const auto field = [&](const char* name) { return Field(root, file, "", name); };

  if (const Field format = field("format"); format.any() != kFormat)
    format.refuse("\"tessera-checkpoint\"");
  if (const Field version = field("version"); version.whole_number() < 1)
    version.refuse("a format version from 1");
  else if (version.whole_number() > kCheckpointFormatVersion)
    fail_user("checkpoint",
              "{}: format version {}, this program reads 1 to {}; use the program that "
              "wrote it or a newer one",
              file, version.any().dump().substr(0, 200), kCheckpointFormatVersion);
  Manifest manifest;
  manifest.step = field("step").whole_number();
  manifest.samples = field("samples").whole_number();
  manifest.tokens = field("tokens").whole_number();
  manifest.seed = field("seed").seed();
  manifest.states = read_states(field("states"));
  manifest.tensors = read_tensors(field("tensors").array(), manifest.states, file);
  manifest.model = field("model").any();
  manifest.config = field("config").any();
  manifest.data = read_data(root, file);
  manifest.training = root.contains("training") ? root["training"] : json();
  manifest.run = root.contains("run") ? root["run"] : json();
  manifest.mesh = field("mesh").any();
  manifest.writer = field("writer").text();
  manifest.files = read_files(field("files").array(), file);
  if (field("version").whole_number() >= 3)
    manifest.index = read_index(field("index").any(), manifest.files, file);
  if (const std::string digest = digest_of(root); field("xxh3").any() != digest)
    fail_damaged(
        "checkpoint",
        "{}: the checksum of its contents is {}, field 'xxh3' says {}; it is damaged or was "
        "edited",
        file, digest, field("xxh3").any().dump().substr(0, 200));
  else
    manifest.id = digest;
  return manifest;
}

void write_manifest(const std::filesystem::path& step_dir, const Manifest& manifest) {
  try {
    write_file_atomic(step_dir / "manifest.json", layout(to_json(manifest)));
  } catch (const json::exception& error) {
    fail("checkpoint", "cannot write {}: {}", (step_dir / "manifest.json").string(), error.what());
  }
}

void check_tensors(const Manifest& manifest, const std::vector<TensorInfo>& expected) {
  std::map<std::string, const TensorInfo*> stored;
  for (const TensorInfo& tensor : manifest.tensors) stored[tensor.name] = &tensor;
  std::vector<std::string> missing, shapes, extra;
  for (const TensorInfo& tensor : expected) {
    const auto found = stored.find(tensor.name);
    if (found == stored.end()) {
      missing.push_back(tensor.name);
      continue;
    }
    if (found->second->shape != tensor.shape)
      shapes.push_back(fmt::format("{} is [{}] in the checkpoint and [{}] in the model",
                                   tensor.name, fmt::join(found->second->shape, ", "),
                                   fmt::join(tensor.shape, ", ")));
    stored.erase(found);
  }
  for (const TensorInfo& tensor : manifest.tensors)
    if (stored.contains(tensor.name)) extra.push_back(tensor.name);
  if (missing.empty() && shapes.empty() && extra.empty()) return;

  std::string text;
  const auto list = [&](const char* what, std::vector<std::string>& items) {
    if (items.empty()) return;
    const size_t count = items.size();
    if (count > 5) items.resize(5);
    text += fmt::format("{}{} {}: {}{}", text.empty() ? "" : "; ", count, what,
                        fmt::join(items, ", "), count > 5 ? ", ..." : "");
  };
  list("missing", missing);
  list("unexpected", extra);
  list("of another shape", shapes);
  fail_user("checkpoint",
            "the checkpoint does not fit the model: {}. Use the model configuration that it was "
            "saved with",
            text);
}

}  // namespace tessera
