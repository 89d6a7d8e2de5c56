#include "checkpoint/store/whole_folder.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/try_folder.h"
#include "base/files/unfinished.h"

namespace tessera {

WholeFolder::WholeFolder(const std::filesystem::path& path) : path_(clean_path(path)) {
  if (path.empty() || !path_.has_filename() || path_.filename() == "..")
    fail_user("checkpoint", "the output folder '{}' has no name; give a path such as out/model",
              path.string());
  const auto type = type_of_input(path_);
  if (type != std::filesystem::file_type::not_found &&
      !(type == std::filesystem::file_type::directory && list_folder(path_).empty()))
    fail_user("checkpoint", "{} exists already; give a folder that does not exist or is empty",
              path_.string());
  std::error_code error;
  std::filesystem::create_directories(folder_of(path_), error);
  if (!error) remove_unfinished_folders(path_);
  partial_ = unfinished_name(path_);
  // create_directory is false where something is there already: the new folder is ours alone.
  for (int i = 2; !error && !std::filesystem::create_directory(partial_, error) && !error; ++i)
    partial_ = unfinished_name(path_, i);
  if (error)
    fail_user("checkpoint", "cannot make the folder {}: {}", partial_.string(), error.message());
  try {
    mark_unfinished(partial_);
    lacks_ = try_folder(partial_);
  } catch (const Error&) {
    remove_tree(partial_);
    throw;
  }
}

WholeFolder::~WholeFolder() {
  if (!published_) remove_tree(partial_);
}

void WholeFolder::publish() {
  unmark_unfinished(partial_);
  sync_folder(partial_);
  rename_path(partial_, path_);
  published_ = true;
  sync_folder(folder_of(path_));
}

}  // namespace tessera
