#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/indexed_writer.h"

namespace tessera {

// Where a pack goes: PREFIX.bin and .idx, and the part held out, PREFIX-valid.bin and .idx. What a
// pack held out must not meet another pack's training data, which may hold the same documents, so
// the four belong together: they are refused together where any of them is there, or replaced
// together, also by a pack that holds nothing out.
class PackTarget {
 public:
  // UserError that names the files if there are any and `replace` is false, if one of them is no
  // file, or if `prefix` names none.
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
  // Returns what was there and is gone without a successor. `probe` is called between these.
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
