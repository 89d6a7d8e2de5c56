#include "checkpoint/store/whole_folder.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/try_folder.h"
#include "base/files/unfinished.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNew = "new";
constexpr const char* kOld = "old";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

// Whether `path` is `folder` or lies in it, links followed.
bool is_within(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  fs::path at = fs::weakly_canonical(path, error);
  const fs::path top = fs::weakly_canonical(folder, error);
  while (!error && at != top && at.has_relative_path()) at = at.parent_path();
  return !error && at == top;
}

// Removes what is in the folder of one output, and the mark that says whose it is last: killed in
// between, the next one still knows that it may go on. Returns a message if something stays.
std::string remove_place(const fs::path& place) {
  for (const char* part : {kNew, kOld})
    if (const std::string why = remove_tree(place / part); !why.empty()) return why;
  return remove_tree(place);
}

}  // namespace

WholeFolder::WholeFolder(const fs::path& path, std::optional<Replace> replace)
    : path_(clean_path(path)), replace_(std::move(replace)) {
  if (path.empty() || !path_.has_filename() || path_.filename() == "..")
    fail_user("checkpoint", "the output folder '{}' has no name; give a path such as out/model",
              path.string());
  clear_left_overs();
  check_free();
  make_place();
  try {
    mark_unfinished(place_);
    partial_ = place_ / kNew;
    make_folders(partial_);
    notes_ = try_folder(partial_);
  } catch (const Error&) {
    remove_place(place_);
    throw;
  }
}

WholeFolder::~WholeFolder() {
  remove_place(place_);
}

// Whether PATH names anything but an empty folder, which a rename replaces.
bool WholeFolder::is_taken() const {
  const auto type = type_of_input(path_);
  return type != fs::file_type::not_found &&
         !(type == fs::file_type::directory && list_folder(path_).empty());
}

void WholeFolder::check_free() const {
  if (!is_taken()) return;
  if (!replace_)
    fail_user("checkpoint",
              "{} exists already; give a folder that does not exist or is empty; --force replaces "
              "one that the same command wrote",
              path_.string());
  for (const fs::path& input : replace_->inputs)
    if (is_within(input, path_))
      fail_user("checkpoint", "{} is not replaced: {} is read; give another output folder",
                path_.string(), input.string());
  std::error_code error;
  const std::string why = fs::is_symlink(path_, error)      ? "it is a link"
                          : !fs::is_directory(path_, error) ? "it is no folder"
                                                            : replace_->why_not(path_);
  if (!why.empty())
    fail_user("checkpoint",
              "{} is not replaced, since --force replaces only what the same command wrote: {}; "
              "give another output folder, or remove this one",
              path_.string(), why);
}

void WholeFolder::clear_left_overs() const {
  for (const fs::path& left : unfinished_folders(path_)) {
    std::error_code cannot;  // then the old folder stays where it is, and nothing is removed
    if (is_there(left / kOld) && !is_there(path_)) fs::rename(left / kOld, path_, cannot);
    if (!cannot) remove_place(left);
  }
}

void WholeFolder::make_place() {
  std::error_code error;
  fs::create_directories(folder_of(path_), error);
  place_ = unfinished_name(path_);
  // create_directory is false where something is there already: the new folder is ours alone.
  for (int i = 2; !error && !fs::create_directory(place_, error) && !error; ++i)
    place_ = unfinished_name(path_, i);
  if (error)
    fail_user("checkpoint", "cannot make the folder {}: {}", place_.string(), error.message());
}

void WholeFolder::publish() {
  sync_folder(partial_);
  const bool replaces = is_taken();
  if (replaces) {
    check_free();  // it may have become another since
    rename_path(path_, place_ / kOld);
  }
  try {
    rename_path(partial_, path_);
  } catch (const Error&) {
    std::error_code ignored;
    if (replaces) fs::rename(place_ / kOld, path_, ignored);
    throw;
  }
  sync_folder(folder_of(path_));
  if (const std::string why = remove_place(place_); !why.empty()) notes_.push_back(why);
}

}  // namespace tessera
