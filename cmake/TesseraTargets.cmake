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

# Two precompiled headers for LibTorch code, since ATen costs 9 s a file without one. Even so every source pays for what
# its header holds: the templates that inline functions there ask for are instantiated anew, 3 s for all of ATen and 1 s
# for tensors alone. So a source gets the large one only if it includes <ATen/ATen.h>, or more of LibTorch, itself, not
# through a header of src/.
function(tessera_precompiled_header name)
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cpp "// holds the precompiled header\n")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE libtorch tessera_warnings fmt::fmt PkgConfig::HWY)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  set(${name}_folder ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir CACHE INTERNAL "where ${name} lies")
endfunction()

# Whether a source, or a header of the tests that it includes, takes all of ATen.
function(tessera_takes_aten file result)
  set(takes FALSE)
  file(STRINGS ${file} includes REGEX "^#include ")
  foreach(line ${includes})
    if(line MATCHES "<(ATen/ATen\\.h|torch/)")
      set(takes TRUE)
    elseif(line MATCHES "\"(.*)\"")
      set(header ${CMAKE_MATCH_1})
      foreach(folder ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tests)
        if(NOT takes AND EXISTS ${folder}/${header})
          tessera_takes_aten(${folder}/${header} takes)
        endif()
      endforeach()
    endif()
  endforeach()
  set(${result} ${takes} PARENT_SCOPE)
endfunction()

function(tessera_use_torch_pch name)
  if(NOT TARGET tensor_pch)
    tessera_precompiled_header(tensor_pch <ATen/core/Tensor.h> <fmt/format.h> <nlohmann/json.hpp> <vector> <string> <memory>)
    tessera_precompiled_header(aten_pch <ATen/ATen.h> <fmt/format.h> <vector> <string> <memory>)
  endif()
  target_precompile_headers(${name} REUSE_FROM tensor_pch)
  get_target_property(sources ${name} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    tessera_takes_aten(${source} takes_aten)
    if(takes_aten)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
        COMPILE_OPTIONS "-Winvalid-pch;-include;${aten_pch_folder}/cmake_pch.hxx"
        OBJECT_DEPENDS ${aten_pch_folder}/cmake_pch.hxx.gch)
    endif()
  endforeach()
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
