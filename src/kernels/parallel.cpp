#include "kernels/parallel.h"

#include <ATen/Parallel.h>

// The only file of the folder compiled with OpenMP: at::parallel_for is serial without it.
namespace tessera::kernels {

void split_range(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t),
                 void* context) {
  if (count <= 0) return;
  if (count <= grain || at::get_num_threads() <= 1) return body(context, 0, count);
  at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) { body(context, begin, end); });
}

}  // namespace tessera::kernels
