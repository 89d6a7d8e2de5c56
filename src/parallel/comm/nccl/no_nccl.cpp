// The twin of nccl_communicator.cpp in builds without CUDA.
#include "base/error.h"
#include "parallel/comm/nccl/nccl_communicator.h"

namespace tessera {

std::unique_ptr<Communicator> make_nccl_world(std::unique_ptr<Communicator> host, const Device&,
                                              NcclOptions) {
  fail_user("comm",
            "{}: communication between GPUs needs NCCL, without which this program was built; "
            "configure with `cmake --preset cuda` and build that",
            host->name());
}

}  // namespace tessera
