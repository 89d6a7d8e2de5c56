#include "data/pack_target.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/files.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail("data", "cannot remove {}: {}", path.string(), error.message());
}

}  // namespace

PackTarget::PackTarget(const std::string& prefix, bool replace)
    : prefix_(prefix), replace_(replace) {
  if (fs::path(prefix).filename().empty())
    fail_user("data", "the output prefix '{}' names no file; give one such as data/mine", prefix);
  refuse_existing();
  for (const fs::path& path : existing()) {
    std::error_code ignored;  // a link to a folder is replaced as any link is
    if (fs::symlink_status(path, ignored).type() == fs::file_type::directory)
      fail_user("data", "{} is a folder; --force replaces files: choose another output prefix",
                path.string());
  }
}

std::vector<fs::path> PackTarget::files() const {
  return {prefix_ + ".bin", prefix_ + ".idx", valid() + ".bin", valid() + ".idx"};
}

std::vector<fs::path> PackTarget::existing() const {
  std::vector<fs::path> found;
  for (const fs::path& path : files()) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(path, error);  // a dangling link is there too
    if (fs::exists(status)) found.push_back(path);
  }
  return found;
}

void PackTarget::refuse_existing() const {
  const auto found = existing();
  if (replace_ || found.empty()) return;
  std::vector<std::string> names;
  for (const fs::path& path : found) names.push_back(path.string());
  fail_user("data",
            "{} {} there already; what a pack trains on and what it holds out are replaced "
            "together or not at all: choose another --out, or give --force, which replaces or "
            "removes {}",
            fmt::join(names, ", "), names.size() == 1 ? "is" : "are",
            names.size() == 1 ? "it" : "all of them");
}

std::vector<fs::path> PackTarget::publish(IndexedWriter& train, IndexedWriter* valid,
                                          const std::function<void(const char*)>& probe) const {
  refuse_existing();  // another pack may have ended meanwhile
  const auto old = existing();
  const fs::path folder = folder_of(prefix_);
  // Each sync makes a row of changes durable before the next begins.
  for (const std::string& part : {prefix_, this->valid()}) {
    remove_file(part + ".idx");
    probe("an index removed");
  }
  sync_folder(folder);
  if (valid) {
    valid->publish_tokens();
  } else {
    remove_file(this->valid() + ".bin");
  }
  probe("held-out tokens in place");
  train.publish_tokens();
  probe("training tokens in place");
  sync_folder(folder);
  if (valid) valid->publish_index();
  probe("held-out index in place");
  train.publish_index();
  sync_folder(folder);

  std::vector<fs::path> gone;
  const auto left = existing();
  std::copy_if(old.begin(), old.end(), std::back_inserter(gone), [&](const fs::path& path) {
    return std::find(left.begin(), left.end(), path) == left.end();
  });
  return gone;
}

}  // namespace tessera
