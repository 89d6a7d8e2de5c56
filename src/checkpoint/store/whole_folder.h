#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// A folder that appears whole or not at all: it is filled under a name of its own beside PATH and
// renamed at the end. What was begun and not published is removed by the destructor, what a killed
// process left by the next one with the same PATH (base/files/unfinished.h).
class WholeFolder {
 public:
  // UserError if `path` exists and is anything but an empty folder. Missing parents are made;
  // nothing that exists is replaced.
  explicit WholeFolder(const std::filesystem::path& path);
  ~WholeFolder();
  WholeFolder(const WholeFolder&) = delete;
  WholeFolder& operator=(const WholeFolder&) = delete;

  // Where the files go until publish(): PATH.partial-PID, or with a number if there is such a name.
  const std::filesystem::path& partial() const { return partial_; }
  void publish();
  // What its file system cannot do and is done without (try_folder.h), to be said once.
  const std::vector<std::string>& lacks() const { return lacks_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::vector<std::string> lacks_;
  bool published_ = false;
};

}  // namespace tessera
