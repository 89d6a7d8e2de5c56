#pragma once

#include <string>

namespace tessera {

// The text of an errno value. (strerror() is not safe between threads.)
std::string reason_of(int error);

// Whether a system call's errno says that the file system cannot do this at all, rather than that
// it went wrong this time: ENOSYS, EOPNOTSUPP, EINVAL, ENOTTY, ENODEV, ENOLCK.
bool is_unsupported(int error);

// The same for the errno of an fsync, which sandboxes and network file systems also refuse with
// EPERM or EBADF.
bool is_sync_unsupported(int error);

}  // namespace tessera
