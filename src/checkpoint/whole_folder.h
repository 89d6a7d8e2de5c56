#pragma once

#include <filesystem>
#include <string>

namespace tessera {

// A folder that appears whole or not at all: it is filled under PATH.partial and renamed at the
// end. What was begun and not published is removed by the destructor.
class WholeFolder {
 public:
  // UserError if `path` exists and is anything but an empty folder. Missing parents are made; a
  // .partial of an earlier attempt is replaced.
  explicit WholeFolder(const std::filesystem::path& path);
  ~WholeFolder();
  WholeFolder(const WholeFolder&) = delete;
  WholeFolder& operator=(const WholeFolder&) = delete;

  // Where the files go until publish().
  const std::filesystem::path& partial() const { return partial_; }
  void publish();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  bool published_ = false;
};

}  // namespace tessera
