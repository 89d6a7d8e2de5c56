#pragma once

// Which instruction sets the kernels are compiled for: AVX-512, AVX2 with FMA, SSE4 and plain C++.
// Each one multiplies the build time; SSE4 serves processors before 2013 and tests (SSSE3 is older
// still, and AVX3_DL brings nothing that the kernels use). Include before hwy/foreach_target.h.

// Keeps plain C++ among the targets even where the compiler was told to assume more
// (-march=native), since TESSERA_CPU=scalar may ask for it.
#define HWY_COMPILE_ALL_ATTAINABLE
#include <hwy/detect_targets.h>

#include "kernels/cpu_target.h"

// TESSERA_FEW_TARGETS: AVX2 and plain C++ alone, for builds with sanitizers, which are slow to
// compile and look for other mistakes than those of one instruction set.
#undef HWY_DISABLED_TARGETS
#ifdef TESSERA_FEW_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_AVX3 | HWY_SSE4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif

// The variant of `function` for the instruction set that this process uses. Every kernel is chosen
// through this macro, so none runs before TESSERA_CPU has been read.
#define TESSERA_DISPATCH(function) \
  (static_cast<void>(::tessera::kernels::cpu_target()), HWY_DYNAMIC_DISPATCH(function))
