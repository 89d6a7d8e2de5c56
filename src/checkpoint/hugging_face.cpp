#include "checkpoint/hugging_face.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/json_text.h"

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
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::filesystem::path name = entry.path().filename();
    if (name.extension() == ".safetensors") names.insert(name.string());
    pickles |= name.extension() == ".bin" || name.extension() == ".pt";
  }
  if (names.contains("model.safetensors")) return {"model.safetensors"};
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

}  // namespace

HuggingFaceFolder open_hugging_face(const std::filesystem::path& dir) {
  if (!std::filesystem::is_directory(dir))
    fail_user("import", "{} is not a folder; give a Hugging Face model folder", dir.string());
  HuggingFaceFolder folder;
  const std::filesystem::path config = dir / "config.json";
  folder.config = parse_json(read_small_file(config, kMaxHfConfigBytes), config.string());
  if (!folder.config.is_object()) fail_user("import", "{}: is not an object", config.string());

  const std::filesystem::path index_path = dir / "model.safetensors.index.json";
  const bool indexed = std::filesystem::exists(index_path);
  std::map<std::string, std::string> index;
  std::set<std::string> names;
  if (indexed) {
    index = read_index(index_path);
    for (const auto& [tensor, name] : index) names.insert(name);
    for (const std::string& name : names)  // all of them, before any is read
      if (!std::filesystem::exists(dir / name))
        fail_user("import", "{} is missing; {} names it", (dir / name).string(),
                  index_path.string());
  } else {
    names = list_files(dir);
  }

  std::map<std::string, std::string> file_of;
  for (const std::string& name : names) {
    folder.files.push_back(dir / name);
    SafetensorsHeader header = read_safetensors_header(File::open(folder.files.back()));
    for (TensorEntry& entry : header.entries) {
      if (!file_of.emplace(entry.name, name).second)
        fail_user("import", "{}: tensor '{}' is both in {} and in {}", dir.string(), entry.name,
                  file_of[entry.name], name);
      if (indexed) {
        const auto listed = index.find(entry.name);
        if (listed == index.end() || listed->second != name)
          fail_user("import", "{}: tensor '{}' of {} is {}", index_path.string(), entry.name, name,
                    listed == index.end() ? "not listed"
                                          : fmt::format("said to be in {}", listed->second));
      }
      const int64_t offset = header.data_begin + entry.begin;
      folder.tensors.push_back({std::move(entry), folder.files.size() - 1, offset});
    }
  }
  for (const auto& [tensor, name] : index)
    if (!file_of.contains(tensor))
      fail_user("import", "{}: tensor '{}' is said to be in {}, which does not hold it",
                index_path.string(), tensor, name);
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
