#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

// Something failed that the user cannot mend by editing an input: exit code 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user's input (configuration, command line, data or checkpoint file) is wrong: exit code 2.
class UserError : public Error {
 public:
  using Error::Error;
};

// The bytes of a file are not what was written: a checksum, a size or a structure does not fit.
// Thrown only where the file itself is certainly at fault, since callers may set a damaged file
// aside and use an older one: never for a failed read, a missing permission or a version that this
// program does not know.
class DamagedError : public UserError {
 public:
  using UserError::UserError;
};

// Throws an Error that reads "[subsystem] message". Messages name the value, the rule and the fix.
template <typename... Args>
[[noreturn]] void fail(std::string_view subsystem, fmt::format_string<Args...> format,
                       Args&&... args) {
  throw Error(fmt::format("[{}] {}", subsystem, fmt::format(format, std::forward<Args>(args)...)));
}

// As fail(), for a mistake in the user's input.
template <typename... Args>
[[noreturn]] void fail_user(std::string_view subsystem, fmt::format_string<Args...> format,
                            Args&&... args) {
  throw UserError(
      fmt::format("[{}] {}", subsystem, fmt::format(format, std::forward<Args>(args)...)));
}

// As fail(), for a file that is certainly damaged.
template <typename... Args>
[[noreturn]] void fail_damaged(std::string_view subsystem, fmt::format_string<Args...> format,
                               Args&&... args) {
  throw DamagedError(
      fmt::format("[{}] {}", subsystem, fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace tessera
