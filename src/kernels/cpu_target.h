#pragma once

namespace tessera::kernels {

// The instruction set of this process's kernels: "avx512", "avx2", "sse4" or "scalar". It is the
// best that the machine has, or less if the environment variable TESSERA_CPU names less; then the
// results are those of such a machine, up to what LibTorch computes (it has a variable of its own,
// ATEN_CPU_CAPABILITY). Decided at the first call, which every kernel makes. UserError if
// TESSERA_CPU names none of the four.
const char* cpu_target();

}  // namespace tessera::kernels
