#include "base/exit_codes.h"

#include "base/error.h"
#include "base/error_kinds.h"

namespace tessera {

int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const UserError*>(&error) != nullptr) return kExitUserError;
  if (dynamic_cast<const ReplacedError*>(&error) != nullptr) return kExitReplaced;
  return kExitFailed;
}

}  // namespace tessera
