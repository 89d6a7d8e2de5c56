#include "base/system_error.h"

#include <cerrno>
#include <system_error>

namespace tessera {

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

bool is_unsupported(int error) {
  switch (error) {
    case ENOSYS:
    case EOPNOTSUPP:  // ENOTSUP as well
    case EINVAL:
    case ENOTTY:
    case ENODEV:
    case ENOLCK:
      return true;
    default:
      return false;
  }
}

bool is_sync_unsupported(int error) {
  return is_unsupported(error) || error == EPERM || error == EBADF;
}

}  // namespace tessera
