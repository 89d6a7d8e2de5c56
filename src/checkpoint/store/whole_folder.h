#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

// Which existing folder may give way to a new one (--force of the tools).
struct Replace {
  using WhyNot = std::function<std::string(const std::filesystem::path&)>;
  static std::optional<Replace> when(bool wanted, WhyNot why_not,
                                     std::vector<std::filesystem::path> inputs) {
    if (!wanted) return std::nullopt;
    return Replace{std::move(why_not), std::move(inputs)};
  }

  // Why the folder is not to be replaced, as a part of a message; empty: it may be. Tools replace
  // only what they write themselves.
  WhyNot why_not;
  // What the tool reads: a folder that is one of these, or holds one, is never replaced.
  std::vector<std::filesystem::path> inputs;
};

// A folder that appears whole or not at all. It is filled beside PATH and takes its place at the
// end:
//
//   PATH.partial-PID/.owner    says whose it is (base/files/unfinished.h)
//                   /new       is filled, and renamed to PATH by publish()
//                   /old       where publish() puts what PATH was until then; removed at the end
//
// What was begun and not published is removed by the destructor, what a killed process left by the
// next one with the same PATH. A process that was killed between the two renames leaves PATH away
// for as long: the next one puts the old folder back before it does anything else.
class WholeFolder {
 public:
  // UserError if `path` exists, unless it is an empty folder or one that `replace` lets go. Missing
  // parents are made.
  explicit WholeFolder(const std::filesystem::path& path, std::optional<Replace> replace = {});
  ~WholeFolder();
  WholeFolder(const WholeFolder&) = delete;
  WholeFolder& operator=(const WholeFolder&) = delete;

  // Where the files go until publish().
  const std::filesystem::path& partial() const { return partial_; }
  void publish();
  // What is to be said once: what its file system cannot do and is done without (try_folder.h), and
  // after publish() what could not be removed.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  bool is_taken() const;
  void check_free() const;
  void clear_left_overs() const;
  void make_place();

  std::filesystem::path path_;
  std::optional<Replace> replace_;
  std::filesystem::path place_;    // PATH.partial-PID, or with a number if there is such a name
  std::filesystem::path partial_;  // `new` in it
  std::vector<std::string> notes_;
};

}  // namespace tessera
