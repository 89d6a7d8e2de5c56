#pragma once

#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace tessera {

// While it lives, this process is another user than root, whom permissions bind.
class AsNobody {
 public:
  AsNobody() : root_(geteuid() == 0) {
    if (root_ && seteuid(65534) != 0) throw std::runtime_error("seteuid");
  }
  ~AsNobody() {
    if (root_ && seteuid(0) != 0) std::abort();
  }

 private:
  bool root_;
};

}  // namespace tessera
