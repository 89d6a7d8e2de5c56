#include "checkpoint/whole_folder.h"

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
  partial_ = fmt::format("{}.partial", path_.string());
  std::filesystem::remove_all(partial_, error);
  std::filesystem::create_directories(partial_, error);
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
