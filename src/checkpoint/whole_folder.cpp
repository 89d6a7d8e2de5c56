#include "checkpoint/whole_folder.h"

#include <unistd.h>

#include "base/error.h"
#include "base/files.h"

namespace tessera {

WholeFolder::WholeFolder(const std::filesystem::path& path) : path_(clean_path(path)) {
  if (path.empty() || !path_.has_filename() || path_.filename() == "..")
    fail_user("checkpoint", "the output folder '{}' has no name; give a path such as out/model",
              path.string());
  std::error_code error;
  if (std::filesystem::exists(path_, error) &&
      !(std::filesystem::is_directory(path_) && std::filesystem::is_empty(path_)))
    fail_user("checkpoint", "{} exists already; give a folder that does not exist or is empty",
              path_.string());
  std::filesystem::create_directories(folder_of(path_), error);
  const std::string name = fmt::format("{}.partial-{}", path_.string(), getpid());
  partial_ = name;
  // create_directory is false where something is there already: the new folder is ours alone.
  for (int i = 2; !error && !std::filesystem::create_directory(partial_, error) && !error; ++i)
    partial_ = fmt::format("{}.{}", name, i);
  if (error)
    fail_user("checkpoint", "cannot make the folder {}: {}", partial_.string(), error.message());
}

WholeFolder::~WholeFolder() {
  std::error_code error;
  if (!published_) std::filesystem::remove_all(partial_, error);
}

void WholeFolder::publish() {
  sync_folder(partial_);
  rename_path(partial_, path_);
  published_ = true;
  sync_folder(folder_of(path_));
}

}  // namespace tessera
