#pragma once

namespace tessera::kernels {

// The instruction set of this process's kernels: "avx512", "avx2", "sse4" or "scalar". It is the
// best that the machine has, or a lower one that the environment variable TESSERA_CPU names. Then
// the kernels' results are those of a machine without more; LibTorch's own operations follow a
// variable of their own, ATEN_CPU_CAPABILITY. Decided at the first call, which every kernel makes.
// UserError if TESSERA_CPU names none of the four.
const char* cpu_target();

}  // namespace tessera::kernels
