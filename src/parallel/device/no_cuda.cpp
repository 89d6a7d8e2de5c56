// The twin of cuda_device.cpp in builds without CUDA.
#include "base/error.h"
#include "parallel/device/cuda_support.h"
#include "parallel/device/device.h"

namespace tessera {

Device Device::cuda(int index) {
  fail_user("device",
            "cuda:{}: this program was built without CUDA; configure with `cmake --preset cuda` "
            "and build that, or compute on cpu",
            index);
}

int visible_gpus() {
  return 0;
}

bool built_with_cuda() {
  return false;
}

}  // namespace tessera
