#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace tessera {

// Another, newer start of the same run has taken this one's place: exit code 4. Nothing more may be
// written into the run folder.
class ReplacedError : public Error {
 public:
  using Error::Error;
};

// Marks an error by which every rank of the world ends, so that one rank should tell it for all.
class OfAllRanks {
 public:
  explicit OfAllRanks(int culprit) : culprit_(culprit) {}
  virtual ~OfAllRanks() = default;

  // The rank on which it happened; -1: it is no single rank's.
  int culprit() const { return culprit_; }

 private:
  int culprit_;
};

// An E (a class of base/error.h) that is marked so.
template <typename E>
class ErrorOfAllRanks final : public E, public OfAllRanks {
 public:
  ErrorOfAllRanks(const std::string& text, int culprit) : E(text), OfAllRanks(culprit) {}
};

// Throws an E with this text, marked as that of all ranks.
template <typename E>
[[noreturn]] void throw_on_all_ranks(const std::string& text, int culprit = -1) {
  throw ErrorOfAllRanks<E>(text, culprit);
}

// As fail(), where every rank comes to the same error by itself.
template <typename... Args>
[[noreturn]] void fail_on_all_ranks(std::string_view subsystem, fmt::format_string<Args...> format,
                                    Args&&... args) {
  throw_on_all_ranks<Error>(
      fmt::format("[{}] {}", subsystem, fmt::format(format, std::forward<Args>(args)...)));
}

// Throws an E that says `text` in place of what `error` says, and is marked as that is.
template <typename E>
[[noreturn]] void throw_with_text(const std::exception& error, const std::string& text) {
  if (const auto* mark = dynamic_cast<const OfAllRanks*>(&error))
    throw_on_all_ranks<E>(text, mark->culprit());
  throw E(text);
}

}  // namespace tessera
