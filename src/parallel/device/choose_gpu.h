#pragma once

namespace tessera {

// Which of the `visible` GPUs rank number `rank` of the `ranks` on its node takes: its own number,
// or the only one where the launcher shows each rank one of its own. UserError if there are fewer
// GPUs than ranks (one that two ranks see is found when NCCL starts, before anything is allocated).
int choose_gpu(int rank, int ranks, int visible);

}  // namespace tessera
