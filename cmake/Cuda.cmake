# What TESSERA_CUDA needs besides LibTorch's CUDA part: nvcc (as CMake's language CUDA), the runtime
# library as `cuda_runtime`, and NCCL as `nccl`. Each thing that is missing is named with where it was
# looked for. No GPU and no driver is needed to build.
if(NOT CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc
    HINTS $ENV{CUDACXX} ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} /usr/local/cuda
    PATH_SUFFIXES bin)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "[setup] TESSERA_CUDA: no nvcc in PATH, $CUDA_HOME/bin or /usr/local/cuda/bin: install the "
    "CUDA toolkit (13.0 goes with the pinned LibTorch), or set CUDA_HOME to where it lies")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${TESSERA_CUDA_ARCH})
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know it
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# The shared runtime: LibTorch uses it too, and two copies of its state in one process would not do.
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
if(NOT TARGET CUDA::cudart)
  message(FATAL_ERROR "[setup] TESSERA_CUDA: no libcudart.so in ${CUDAToolkit_LIBRARY_DIR}: install the CUDA runtime "
    "with its development files")
endif()
add_library(cuda_runtime INTERFACE IMPORTED GLOBAL)
target_link_libraries(cuda_runtime INTERFACE CUDA::cudart)

# NCCL: NCCL_ROOT (cache variable or environment), the toolkit, the system, or what setup.sh --cuda unpacked.
set(nccl_hints ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_INCLUDE_DIRS}/.. ${CUDAToolkit_LIBRARY_ROOT}
  ${CMAKE_SOURCE_DIR}/deps/libtorch/nvidia/nccl)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${nccl_hints} PATH_SUFFIXES lib lib64)
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  message(FATAL_ERROR "[setup] TESSERA_CUDA: NCCL is missing (nccl.h: ${NCCL_INCLUDE_DIR}; libnccl.so: ${NCCL_LIBRARY}): "
    "install libnccl-dev, run launch/setup.sh --cuda, or set NCCL_ROOT to a folder that holds include/ and lib/")
endif()
foreach(part MAJOR MINOR PATCH)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "define NCCL_${part} ")
  string(REGEX MATCH "[0-9]+" NCCL_${part} "${line}")
endforeach()
set(NCCL_VERSION ${NCCL_MAJOR}.${NCCL_MINOR}.${NCCL_PATCH})
if(NCCL_VERSION VERSION_LESS 2.18)
  message(FATAL_ERROR "[setup] TESSERA_CUDA: NCCL ${NCCL_VERSION} in ${NCCL_INCLUDE_DIR} has no ncclCommSplit; "
    "2.18 or later is needed")
endif()
add_library(nccl INTERFACE IMPORTED GLOBAL)
target_include_directories(nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
target_link_libraries(nccl INTERFACE ${NCCL_LIBRARY} cuda_runtime)
