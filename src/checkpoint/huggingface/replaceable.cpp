#include "checkpoint/huggingface/replaceable.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/huggingface/export_files.h"
#include "checkpoint/huggingface/hf_files.h"
#include "safetensors/reader.h"

namespace tessera {
namespace {

// Runs `look`, which says what is wrong; what keeps it from looking is wrong too.
template <typename Look>
std::string reason_of_look(Look look) {
  try {
    return look();
  } catch (const Error& error) {
    return error.what();
  }
}

// Whether this program wrote a file of weights.
bool is_ours(const std::filesystem::path& file) {
  return read_safetensors_header(File::open(file)).metadata.contains(kWrittenBy);
}

// What is wrong with the files of tensors of one folder of an export, and what else it holds; `own`
// are the other names that are no surprise.
std::string why_no_export_files(const std::filesystem::path& folder, const char* stem,
                                const std::set<std::string>& own) {
  int64_t weights = 0;
  for (const auto& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    if (is_export_file(name, stem)) {
      if (!is_ours(path)) return fmt::format("{} was written by another program", path.string());
      ++weights;
    } else if (name != export_index_name(stem) && !own.contains(name)) {
      return fmt::format("{} is no part of an export", path.string());
    }
  }
  return weights > 0 ? "" : fmt::format("{} holds no {}.safetensors", folder.string(), stem);
}

}  // namespace

std::string why_no_step_folder(const std::filesystem::path& folder) {
  return reason_of_look([&]() -> std::string {
    std::set<std::string> known{"manifest.json", kHfFilesFolder};
    const Manifest manifest = read_manifest(folder);
    for (const ManifestFile& file : manifest.files) known.insert(file.name);
    if (manifest.index) known.insert(manifest.index->name);
    for (const auto& path : list_folder(folder))
      if (!known.contains(path.filename().string()))
        return fmt::format("{} is no part of a checkpoint", path.string());
    return "";
  });
}

std::string why_no_export(const std::filesystem::path& folder) {
  return reason_of_look([&]() -> std::string {
    std::set<std::string> known{"config.json", kTrainingStateFolder};
    for (const std::filesystem::path& carried : carried_names(folder))
      known.insert(carried.begin()->string());
    const std::string why = why_no_export_files(folder, kWeightsStem, known);
    if (!why.empty() || !is_folder(folder / kTrainingStateFolder)) return why;
    return why_no_export_files(folder / kTrainingStateFolder, kStateStem, {kTrainingStateFile});
  });
}

}  // namespace tessera
