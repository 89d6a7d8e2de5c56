#pragma once

#include <functional>
#include <string>

#include "base/error.h"

namespace tessera {

// The message of the UserError that `body` throws.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tessera
