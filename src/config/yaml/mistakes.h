#pragma once

#include <string>
#include <vector>

namespace tessera {

// Where something was given.
struct TextPlace {
  std::string text;  // FILE:LINE:COLUMN, or --set KEY; empty: nowhere
  int line = 0;      // from 1; 0: not in a file
  int column = 0;
  bool overrides = false;  // by --set
};

// What is wrong with a configuration: all of it, so that one look at it is enough.
class Mistakes {
 public:
  void add(const TextPlace& place, std::string message);
  // Adds those of another reading.
  void take(const Mistakes& other) {
    list_.insert(list_.end(), other.list_.begin(), other.list_.end());
  }
  bool empty() const { return list_.empty(); }

  // Throws UserError "[config] PLACE: message", or one with a line for each of several mistakes, in
  // the order of the file. Does nothing if there are none.
  void throw_if_any() const;
  // Adds a mistake after which nothing more can be read, and throws all.
  [[noreturn]] void fail(const TextPlace& place, std::string message);

 private:
  struct Mistake {
    TextPlace place;
    std::string message;
  };
  std::vector<Mistake> list_;
};

}  // namespace tessera
