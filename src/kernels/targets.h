#pragma once

// Which instruction sets the kernels are compiled for: AVX-512, AVX2 with FMA, and the compiler's
// baseline. Each one multiplies the build time, and machines between these are older than 2013.
// Include before hwy/foreach_target.h.
#include <hwy/detect_targets.h>

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
