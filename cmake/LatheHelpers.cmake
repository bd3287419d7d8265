# Helpers shared by all rooms.

# lathe_add_library(NAME sources... [LIBS libs...]): a plain C++ library (no MLIR), optimised.
function(lathe_add_library name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC ${ARG_LIBS})
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O2)
  endif()
endfunction()

# lathe_add_unit_test(NAME sources... [LIBS libs...]): a GoogleTest program run by ctest.
# LATHE_SOURCE_DIR is defined for tests that read files of the tree.
function(lathe_add_unit_test name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE LATHE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/unit)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1 WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/test/unit)
endfunction()

# lathe_test_uses_threads(TEST [TARGET...]): the test is of interest to ThreadSanitizer. `ctest -L threads` runs those tests, the
# target `threaded-tests` builds what they need: TEST's program unless TARGETs are named. Call it where the test is added.
add_custom_target(threaded-tests)
function(lathe_test_uses_threads test)
  set_property(TEST ${test} APPEND PROPERTY LABELS threads)
  set(targets ${ARGN})
  if(NOT targets)
    set(targets ${test})
  endif()
  add_dependencies(threaded-tests ${targets})
endfunction()

# lathe_portable(TARGET): the program needs the C library of the machine it runs on and nothing else (scripts/gpu.sh packs such). What it does not use of
# the C++ library goes: the static one names functions of newer C libraries in parts that nothing here calls.
function(lathe_portable target)
  if(NOT LATHE_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  endif()
endfunction()

# lathe_add_fuzzer(NAME sources... [LIBS libs...]): a libFuzzer program, built only with LATHE_FUZZERS.
function(lathe_add_fuzzer name)
  if(NOT LATHE_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/fuzz)
endfunction()

# Adds every subdirectory of the current folder that has a CMakeLists.txt, in the given order
# first, then the rest by name: a new room needs no edit here.
function(lathe_add_rooms)
  foreach(room ${ARGN})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/CMakeLists.txt)
      add_subdirectory(${room})
    endif()
  endforeach()
  file(GLOB rooms CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(file ${rooms})
    get_filename_component(room ${file} DIRECTORY)
    if(NOT room IN_LIST ARGN)
      add_subdirectory(${room})
    endif()
  endforeach()
endfunction()
