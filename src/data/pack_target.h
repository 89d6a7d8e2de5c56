#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/indexed_writer.h"

namespace tessera {

// Where a pack goes: PREFIX.bin and .idx, and the part held out, PREFIX-valid.bin and .idx. The
// part that one pack held out must never validate a model that was trained on another pack, whose
// training data may hold the same documents. So the four files belong together: if any of them
// exists, a new pack is either refused or replaces all four, even if it holds nothing out.
class PackTarget {
 public:
  // UserError that names the files if any of the four exists and `replace` is false, if one of them
  // is a folder, or if `prefix` ends without a file name.
  PackTarget(const std::string& prefix, bool replace);

  const std::string& train() const { return prefix_; }
  std::string valid() const { return prefix_ + "-valid"; }
  // The four paths, whether there or not.
  std::vector<std::filesystem::path> files() const;

  // Puts finished data sets in place; `valid` may be null. At no moment, also of a crash, can one
  // of the old pack be read beside one of the new:
  //
  //   old .idx removed   | nothing can be read
  //   .bin renamed       | nothing can be read; an old held-out .bin without successor is removed
  //   .idx renamed       | the held-out part can be read, then the training data
  //
  // Returns the old files that have no successor and were removed. `probe`, for tests, is called
  // between these steps.
  std::vector<std::filesystem::path> publish(
      IndexedWriter& train, IndexedWriter* valid,
      const std::function<void(const char* point)>& probe = [](const char*) {}) const;

 private:
  std::vector<std::filesystem::path> existing() const;
  void refuse_existing() const;

  std::string prefix_;
  bool replace_;
};

}  // namespace tessera
