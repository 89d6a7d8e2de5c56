# The imported target `libtorch`: the CPU part of a PyTorch wheel or of a LibTorch archive, and with
# TESSERA_CUDA the CUDA part as well.
#
# find_package(Torch) of a CUDA wheel insists on a CUDA toolkit, so the target is made by hand. The
# root is TESSERA_TORCH_ROOT (cache variable or environment): the folder that holds include/ and lib/.
# Without it, deps/libtorch/torch is taken, which launch/setup.sh fills.
if(NOT TESSERA_TORCH_ROOT)
  if(DEFINED ENV{TESSERA_TORCH_ROOT})
    set(TESSERA_TORCH_ROOT $ENV{TESSERA_TORCH_ROOT})
  else()
    set(TESSERA_TORCH_ROOT ${CMAKE_SOURCE_DIR}/deps/libtorch/torch)
  endif()
endif()
set(TESSERA_TORCH_ROOT ${TESSERA_TORCH_ROOT} CACHE PATH "Folder with LibTorch's include/ and lib/" FORCE)

set(version_header ${TESSERA_TORCH_ROOT}/include/torch/headeronly/version.h)
if(NOT EXISTS ${version_header})
  set(version_header ${TESSERA_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h)
endif()
if(NOT EXISTS ${TESSERA_TORCH_ROOT}/lib/libtorch_cpu.so OR NOT EXISTS ${version_header})
  message(FATAL_ERROR "[setup] no LibTorch under ${TESSERA_TORCH_ROOT}: "
    "run launch/setup.sh, or set TESSERA_TORCH_ROOT to a folder that holds include/ and lib/")
endif()

foreach(part MAJOR MINOR PATCH)
  file(STRINGS ${version_header} line REGEX "define TORCH_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+" TORCH_${part} "${line}")
endforeach()
set(TESSERA_TORCH_VERSION ${TORCH_MAJOR}.${TORCH_MINOR}.${TORCH_PATCH})
if(TESSERA_TORCH_VERSION VERSION_LESS 2.7)
  message(FATAL_ERROR "[setup] LibTorch ${TESSERA_TORCH_VERSION} is too old; 2.7 or later is needed")
endif()

# The wheel keeps the CUDA runtime that libtorch_cpu.so itself needs beside the torch folder.
set(torch_lib_dirs ${TESSERA_TORCH_ROOT}/lib)
foreach(dir ${TESSERA_TORCH_ROOT}/../nvidia/cu13/lib ${TESSERA_TORCH_ROOT}/../nvidia/cudnn/lib
    ${TESSERA_TORCH_ROOT}/../nvidia/cusparselt/lib ${TESSERA_TORCH_ROOT}/../nvidia/nccl/lib
    ${TESSERA_TORCH_ROOT}/../nvidia/nvshmem/lib)
  if(EXISTS ${dir})
    get_filename_component(dir ${dir} REALPATH)
    list(APPEND torch_lib_dirs ${dir})
  endif()
endforeach()

add_library(libtorch INTERFACE IMPORTED GLOBAL)
target_include_directories(libtorch SYSTEM INTERFACE
  ${TESSERA_TORCH_ROOT}/include ${TESSERA_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(libtorch INTERFACE
  ${TESSERA_TORCH_ROOT}/lib/libtorch_cpu.so ${TESSERA_TORCH_ROOT}/lib/libc10.so)
foreach(dir ${torch_lib_dirs})
  target_link_options(libtorch INTERFACE "LINKER:-rpath,${dir}" "LINKER:-rpath-link,${dir}")
endforeach()
if(TESSERA_CUDA)
  foreach(name torch_cuda c10_cuda)
    if(NOT EXISTS ${TESSERA_TORCH_ROOT}/lib/lib${name}.so)
      message(FATAL_ERROR "[setup] TESSERA_CUDA: no lib${name}.so in ${TESSERA_TORCH_ROOT}/lib: that LibTorch "
        "is for CPUs only; run launch/setup.sh --cuda-build (to compile) or --cuda (to run as well)")
    endif()
  endforeach()
  # Nothing of ours names a symbol of libtorch_cuda.so, which registers its operators when it is loaded:
  # hence --no-as-needed. It needs libraries (cuFile, NVSHMEM) that only a machine with GPUs must have.
  # Only to link: code that includes CUDA's headers names cuda_runtime itself, and all the rest compiles as it does
  # without CUDA (so that a compiler cache has it already).
  target_link_libraries(libtorch INTERFACE ${TESSERA_TORCH_ROOT}/lib/libtorch_cuda.so
    ${TESSERA_TORCH_ROOT}/lib/libc10_cuda.so $<LINK_ONLY:cuda_runtime>)
  target_link_options(libtorch INTERFACE LINKER:--no-as-needed,--allow-shlib-undefined)
endif()
# LibTorch brings fmt's headers, newer than the system's and found first; its library has no symbols
# of theirs for us, so LibTorch code takes fmt as headers only.
target_compile_definitions(libtorch INTERFACE FMT_HEADER_ONLY)
