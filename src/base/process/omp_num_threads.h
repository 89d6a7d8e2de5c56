#pragma once

namespace tessera {

inline constexpr int kMostThreads = 1024;

// OMP_NUM_THREADS, or 1 where it is not set. Of a list, which is for nested regions, the first
// number counts. UserError if it is not a number from 1 to kMostThreads: OpenMP's runtime would
// take another than what was meant.
int omp_num_threads();

}  // namespace tessera
