#include "checkpoint/huggingface/hugging_face.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text/json_text.h"
#include "checkpoint/huggingface/hf_names.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

// Tensor name -> file name, from the index.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const std::string file = path.string();
  const json index = parse_json(read_small_file(path, kMaxIndexBytes), file);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail_user("import", "{}: has no object 'weight_map'", file);
  std::map<std::string, std::string> map;
  for (const auto& [tensor, name] : index["weight_map"].items()) {
    if (!name.is_string() || !is_plain_name(name.get_ref<const std::string&>()))
      fail_user("import", "{}: tensor '{}' is in {}; the rule is a plain file name in the folder",
                file, tensor, name.dump());
    map[tensor] = name.get<std::string>();
  }
  if (map.empty()) fail_user("import", "{}: weight_map is empty", file);
  return map;
}

// Without an index: all safetensors files. Names like model-00001-of-00002 say how many there are.
std::set<std::string> list_files(const std::filesystem::path& dir) {
  std::set<std::string> names;
  bool pickles = false;
  for (const std::filesystem::path& entry : list_folder(dir)) {
    const std::filesystem::path name = entry.filename();
    if (name.extension() == ".safetensors") names.insert(name.string());
    pickles |= name.extension() == ".bin" || name.extension() == ".pt";
  }
  if (names.empty())
    fail_user("import", "{} holds no *.safetensors file{}", dir.string(),
              pickles ? ", only files in PyTorch's own format; save the model again with "
                        "safe_serialization=True"
                      : "");
  for (const std::string& name : names) {
    const size_t mark = name.find("-of-");
    if (mark == std::string::npos || mark < 5) continue;
    int count = 0;
    std::from_chars(name.data() + mark + 4, name.data() + name.size(), count);
    if (count > 100000) fail_user("import", "{}/{}: names too many files", dir.string(), name);
    for (int i = 1; i <= count; ++i) {
      const std::string part =
          fmt::format("{}{:05}{}", name.substr(0, mark - 5), i, name.substr(mark));
      if (!names.contains(part))
        fail_user("import", "{} is missing; {} says that there are {} files", (dir / part).string(),
                  name, count);
    }
  }
  return names;
}

// The files of the weights, and where they come from an index, which tensor is in which.
struct WeightFiles {
  std::set<std::string> names;
  std::filesystem::path index_path;  // empty: no index
  std::map<std::string, std::string> index;
};

WeightFiles from_index(const std::filesystem::path& path) {
  WeightFiles files{{}, path, read_index(path)};
  for (const auto& [tensor, name] : files.index) files.names.insert(name);
  for (const std::string& name : files.names)  // all of them, before any is read
    if (const auto file = path.parent_path() / name; !is_file(file))
      fail_user("import", "{} is missing; {} names it", file.string(), path.string());
  return files;
}

// Looks for the weights in the order in which transformers does.
WeightFiles choose_files(HuggingFaceFolder& folder) {
  constexpr const char* kNamed = "transformers_weights";
  constexpr const char* kSingle = "model.safetensors";
  constexpr const char* kIndexEnd = ".safetensors.index.json";
  const std::filesystem::path index = folder.path / "model.safetensors.index.json";
  if (folder.config.contains(kNamed) && !folder.config[kNamed].is_null()) {
    const json& value = folder.config[kNamed];
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    if (!is_plain_name(name) || !(name.ends_with(".safetensors") || name.ends_with(kIndexEnd)))
      fail_user("import", "{}: {}: {}; the rule is the name of a *.safetensors file or its index",
                (folder.path / "config.json").string(), kNamed, value.dump());
    if (name.ends_with(kIndexEnd)) return from_index(folder.path / name);
    return {.names = {name}, .index_path = {}, .index = {}};
  }
  if (is_file(folder.path / kSingle)) {
    if (is_file(index))
      folder.notes.push_back(
          fmt::format("{} holds {}, which is read, and {}, which is not, as "
                      "transformers does it",
                      folder.path.string(), kSingle, index.filename().string()));
    return {.names = {kSingle}, .index_path = {}, .index = {}};
  }
  if (is_file(index)) return from_index(index);
  return {.names = list_files(folder.path), .index_path = {}, .index = {}};
}

// UserError unless the index says that the tensor lies in `file`, where it was found.
void check_listed(const WeightFiles& files, const std::string& tensor, const std::string& file) {
  const auto listed = files.index.find(tensor);
  if (listed == files.index.end() || listed->second != file)
    fail_user("import", "{}: tensor '{}' of {} is {}", files.index_path.string(), tensor, file,
              listed == files.index.end() ? "not listed"
                                          : fmt::format("said to be in {}", listed->second));
}

void open_files(HuggingFaceFolder& folder, const HfTensors& names) {
  const WeightFiles files = choose_files(folder);
  const auto unlisted = [&](const std::string& tensor) {
    return files.index_path.empty() || (names.tied && without_wrappers(tensor) == names.tied->head);
  };
  std::map<std::string, std::string> file_of;
  for (const std::string& name : files.names) {
    folder.files.push_back(folder.path / name);
    SafetensorsHeader header = read_safetensors_header(File::open(folder.files.back()));
    folder.headers.push_back(header.xxh3);
    for (TensorEntry& entry : header.entries) {
      if (is_ignored(names, entry.name)) continue;
      if (!file_of.emplace(entry.name, name).second)
        fail_user("import", "{}: tensor '{}' is both in {} and in {}", folder.path.string(),
                  entry.name, file_of[entry.name], name);
      if (!unlisted(entry.name)) check_listed(files, entry.name, name);
      const int64_t offset = header.data_begin + entry.begin;
      std::string stored_name = entry.name;
      folder.tensors.push_back(
          {std::move(entry), folder.files.size() - 1, offset, std::move(stored_name)});
    }
  }
  for (const auto& [tensor, name] : files.index)
    if (!file_of.contains(tensor) && !unlisted(tensor) && !is_ignored(names, tensor))
      fail_user("import", "{}: tensor '{}' is said to be in {}, which does not hold it",
                files.index_path.string(), tensor, name);
}

}  // namespace

json read_hugging_face_config(const std::filesystem::path& dir) {
  return reading_source([&] {
    if (type_of_input(dir) != std::filesystem::file_type::directory)
      fail_user("import", "{} is not a folder; give a Hugging Face model folder", dir.string());
    const std::filesystem::path file = dir / "config.json";
    json config = parse_json(read_small_file(file, kMaxHfConfigBytes), file.string());
    if (!config.is_object()) fail_user("import", "{}: is not an object", file.string());
    return config;
  });
}

HuggingFaceFolder open_hugging_face(const std::filesystem::path& dir, json config,
                                    const HfTensors& names) {
  HuggingFaceFolder folder;
  folder.path = dir;
  folder.config = std::move(config);
  reading_source([&] { open_files(folder, names); });
  return folder;
}

std::string torch_dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return "float64";
    case Dtype::kF16:
      return "float16";
    case Dtype::kBF16:
      return "bfloat16";
    case Dtype::kF32:
      return "float32";
    default:
      fail("checkpoint", "a model of {} cannot be exported; its weights are floating point",
           dtype_name(dtype));
  }
}

}  // namespace tessera
