# tessera_library(NAME [FLOORS ...] [LINK ...] [TORCH] [COLD]) : a static library of every .cpp in the current folder
#   and in those of its folders that FLOORS names, in any order. Names choose between twins: cuda_*.cpp, nccl_*.cpp and
#   *.cu are built with TESSERA_CUDA, no_*.cpp without. TORCH: it includes headers of LibTorch. COLD: what it does takes
#   no time in a run, so it is compiled fast rather than well (-O1 takes a third less time than -O3); so are tests.
# tessera_test(NAME LIBS target ... [RANKS n ...] [ARGS argument ...] [TORCH] [QUICK] [NUMERIC]) : a GoogleTest binary
#   from NAME.cpp, linked with LIBS and run with ARGS. TORCH: it includes headers of LibTorch. QUICK: it takes seconds
#   and no MPI. NUMERIC: it compares numbers whose last bits depend on the processor (tests/run.sh --numeric). Without
#   RANKS it runs as one process (threads stand for ranks). With RANKS it runs under mpirun once for each count, and its
#   main is tests/support/mpi_main.cpp.

add_library(tessera_warnings INTERFACE)
target_compile_options(tessera_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Wshadow -Werror -Wno-unknown-pragmas>)
# No -Wpedantic for .cu files: what nvcc hands to the host compiler has line directives of GCC's own.
target_compile_options(tessera_warnings INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:
  -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Wshadow,-Werror>)
# GCC 12 sees overlapping copies in plain string concatenation (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(tessera_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(TESSERA_SANITIZE)
  target_compile_options(tessera_warnings INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(tessera_warnings INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()

function(tessera_library name)
  cmake_parse_arguments(ARG "TORCH;COLD" "" "FLOORS;LINK" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(floor ${ARG_FLOORS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${floor}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(TESSERA_CUDA)
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
    list(APPEND sources ${cuda_sources})
    list(FILTER sources EXCLUDE REGEX "/no_[^/]*$")
  else()
    list(FILTER sources EXCLUDE REGEX "/(cuda|nccl)_[^/]*$")
  endif()
  if(NOT sources)  # headers only
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} INTERFACE ${ARG_LINK})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE tessera_warnings)
  if(ARG_COLD)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(ARG_TORCH)
    target_link_libraries(${name} PUBLIC libtorch)
    tessera_use_torch_pch(${name})
  endif()
endfunction()

# One precompiled header for all LibTorch code: ATen alone costs 9 s a file without it.
function(tessera_use_torch_pch name)
  if(NOT TARGET torch_pch)
    file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cpp "// holds the precompiled header\n")
    add_library(torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
    target_link_libraries(torch_pch PRIVATE libtorch tessera_warnings fmt::fmt PkgConfig::HWY)
    target_precompile_headers(torch_pch PRIVATE
      <ATen/ATen.h> <torch/csrc/autograd/custom_function.h> <fmt/format.h> <nlohmann/json.hpp> <vector> <string> <memory>)
  endif()
  target_precompile_headers(${name} REUSE_FROM torch_pch)
endfunction()

function(tessera_test name)
  cmake_parse_arguments(ARG "QUICK;NUMERIC;TORCH" "" "LIBS;RANKS;ARGS" ${ARGN})
  add_executable(${name} ${name}.cpp)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest tessera_warnings)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests
    ${CMAKE_BINARY_DIR}/tests)
  if(ARG_TORCH)
    target_link_libraries(${name} PRIVATE libtorch)
    target_compile_options(${name} PRIVATE -fPIC)  # as the precompiled header was compiled
    tessera_use_torch_pch(${name})
  endif()
  set(labels full)
  if(ARG_QUICK)
    set(labels quick)
  endif()
  if(ARG_NUMERIC)
    list(APPEND labels numeric)
  endif()
  if(ARG_RANKS)
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/mpi_main.cpp)
    target_link_libraries(${name} PRIVATE tessera_comm)
    foreach(ranks ${ARG_RANKS})
      add_test(NAME ${name}.n${ranks} COMMAND ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe
        --bind-to none -n ${ranks} $<TARGET_FILE:${name}> ${ARG_ARGS})
      set_tests_properties(${name}.n${ranks} PROPERTIES LABELS "${labels}" TIMEOUT 300
        ENVIRONMENT "OMP_NUM_THREADS=1")
    endforeach()
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 600 ENVIRONMENT "OMP_NUM_THREADS=1")
  endif()
endfunction()
