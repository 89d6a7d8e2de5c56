#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera {

// Takes the rules that a configuration breaks: a check goes on after the first.
class RuleReport {
 public:
  virtual ~RuleReport() = default;

  // `keys`: those that the rule is about ("training.steps", or a section), the one to mend first. A
  // rule about a key that could not be read is passed over. The message begins with the key.
  template <typename... Args>
  void broken(const std::vector<std::string>& keys, fmt::format_string<Args...> format,
              Args&&... args) {
    add(keys, fmt::format(format, std::forward<Args>(args)...));
  }

 protected:
  virtual void add(const std::vector<std::string>& keys, std::string message) = 0;
};

}  // namespace tessera
