#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera {

// Collects the rules that a configuration breaks, so that a check can go on after the first one.
class RuleReport {
 public:
  virtual ~RuleReport() = default;

  // `keys`: the keys or sections that the rule is about, such as "training.steps"; the one that the
  // user should mend comes first. The report is dropped if one of them could not be read, since
  // that was reported already. The message must begin with the key.
  template <typename... Args>
  void broken(const std::vector<std::string>& keys, fmt::format_string<Args...> format,
              Args&&... args) {
    add(keys, fmt::format(format, std::forward<Args>(args)...));
  }

 protected:
  virtual void add(const std::vector<std::string>& keys, std::string message) = 0;
};

}  // namespace tessera
