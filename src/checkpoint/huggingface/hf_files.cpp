#include "checkpoint/huggingface/hf_files.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "base/error.h"
#include "base/files/files.h"

namespace tessera {
namespace {

constexpr const char* kCarried[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tokenizer.model.v3",
    "tekken.json",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    kHfImageProcessorFile,
};
// Of these, those that turn text into ids.
constexpr const char* kTokenizers[] = {"tokenizer.json", "tokenizer.model", "tokenizer.model.v3",
                                       "tekken.json",    "spiece.model",    "vocab.json",
                                       "vocab.txt"};
constexpr const char* kTemplates = "additional_chat_templates";  // a folder
constexpr const char* kCode = ".py";
constexpr const char* kAutoMap = "auto_map";
constexpr const char* kPipelines = "custom_pipelines";

// Whether the module of "module.Class" is there; one of a hub, "owner/name--module.Class", need
// not.
bool comes_along(const nlohmann::json& name, const std::optional<std::filesystem::path>& carried) {
  if (!name.is_string()) return false;
  const std::string text = name.get<std::string>();
  if (text.find("--") != std::string::npos) return true;
  const std::string file = text.substr(0, text.rfind('.')) + kCode;
  return carried && is_plain_name(file) && is_file(*carried / file);
}

// Erases the entries of the map config[key] that `keep` refuses, and the map if none is left.
template <typename Keep>
void keep_if(nlohmann::json& config, const char* key, Keep keep) {
  nlohmann::json kept = nlohmann::json::object();
  if (config[key].is_object())
    for (const auto& [name, value] : config[key].items())
      if (keep(value)) kept[name] = value;
  if (kept.empty())
    config.erase(key);
  else
    config[key] = std::move(kept);
}

void carry_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  make_folders(to.parent_path());
  copy_bytes(from, to);
}

}  // namespace

std::optional<std::filesystem::path> find_hf_files(const std::filesystem::path& step_dir) {
  std::error_code no_working_folder;
  const std::filesystem::path whole =
      std::filesystem::absolute(step_dir, no_working_folder).lexically_normal();
  const std::filesystem::path step = whole.has_filename() ? whole : whole.parent_path();
  if (is_folder(step / kHfFilesFolder)) return step / kHfFilesFolder;
  // RUN/checkpoints/step-00000100; a step folder elsewhere in RUN is no checkpoint of the run.
  if (step.parent_path().filename() != "checkpoints") return std::nullopt;
  const std::filesystem::path of_run = step.parent_path().parent_path() / kHfFilesFolder;
  if (is_folder(of_run)) return of_run;
  return std::nullopt;
}

bool has_tokenizer(const std::filesystem::path& folder) {
  std::error_code error;
  return std::any_of(std::begin(kTokenizers), std::end(kTokenizers), [&](const char* name) {
    return std::filesystem::exists(folder / name, error);
  });
}

std::vector<std::filesystem::path> carried_names(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> names;
  for (const char* name : kCarried)
    if (is_file(folder / name)) names.emplace_back(name);
  for (const auto& path : list_folder(folder))
    if (path.extension() == kCode && is_file(path)) names.push_back(path.filename());
  if (is_folder(folder / kTemplates))
    for (const auto& path : list_folder(folder / kTemplates))
      if (is_file(path)) names.push_back(kTemplates / path.filename());
  return names;
}

void copy_hf_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const std::filesystem::path& name : carried_names(from)) carry_file(from / name, to / name);
}

void check_hf_files(const std::filesystem::path& from) {
  for (const std::filesystem::path& name : carried_names(from)) File::open(from / name);
}

bool has_own_code(const nlohmann::json& config) {
  return config.contains(kAutoMap) && !config[kAutoMap].is_null() && !config[kAutoMap].empty();
}

void drop_missing_files(nlohmann::json& config,
                        const std::optional<std::filesystem::path>& carried) {
  config.erase("transformers_weights");
  // {"AutoModel": "module.Class", "AutoTokenizer": ["module.Class", null]}
  if (config.contains(kAutoMap))
    keep_if(config, kAutoMap, [&](const nlohmann::json& value) {
      if (!value.is_array()) return comes_along(value, carried);
      return std::all_of(value.begin(), value.end(), [&](const nlohmann::json& one) {
        return one.is_null() || comes_along(one, carried);
      });
    });
  // {"task": {"impl": "module.Class", ...}}
  if (config.contains(kPipelines))
    keep_if(config, kPipelines, [&](const nlohmann::json& value) {
      return value.is_object() && comes_along(value.value("impl", nlohmann::json()), carried);
    });
}

void replace_hf_files(const std::optional<std::filesystem::path>& from,
                      const std::filesystem::path& to) {
  std::error_code error;
  if (from && std::filesystem::equivalent(*from, to, error)) return;
  if (const std::string why = remove_tree(to); !why.empty()) fail("checkpoint", "{}", why);
  if (from) copy_hf_files(*from, to);
}

}  // namespace tessera
