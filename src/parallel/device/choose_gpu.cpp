#include "parallel/device/choose_gpu.h"

#include "base/error.h"

namespace tessera {

int choose_gpu(int rank, int ranks, int visible) {
  if (visible == 1) return 0;
  if (ranks > visible)
    fail_user("device",
              "{} ranks on this node, but {} GPUs are visible; NCCL wants one GPU each: start at "
              "most {} ranks on a node (mpirun --map-by ppr:{}:node, srun --ntasks-per-node={}), "
              "or show more GPUs (CUDA_VISIBLE_DEVICES)",
              ranks, visible, visible, visible, visible);
  return rank;
}

}  // namespace tessera
