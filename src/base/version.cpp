#include "base/version.h"

namespace tessera {

const char* program_version() {
  return "tessera " TESSERA_VERSION;
}

}  // namespace tessera
