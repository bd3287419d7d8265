# MLIR/LLVM 22 of Debian, the shared libraries only, and helpers for code that uses them.
# "22.1", not "22": the version file accepts only an equal major.minor.
find_package(MLIR 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)
separate_arguments(LATHE_LLVM_DEFS NATIVE_COMMAND ${LLVM_DEFINITIONS})

# The one precompiled header of everything that includes MLIR (11 s a file -> 3 s).
add_library(LathePch STATIC ${CMAKE_SOURCE_DIR}/cmake/Pch.cpp)
target_compile_definitions(LathePch PUBLIC ${LATHE_LLVM_DEFS})
target_include_directories(LathePch SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_include_directories(LathePch PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>)
target_link_libraries(LathePch PUBLIC MLIR LLVM) # libMLIR.so + libLLVM.so: never the static archives
target_compile_options(LathePch PUBLIC "$<BUILD_INTERFACE:SHELL:-Xclang -fno-pch-timestamp>")
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(LathePch PRIVATE -O1)
endif()
if(LATHE_SANITIZE)
  # Without NDEBUG a pass's statistic has a flag that the LLVM libraries, built with it, do not initialise.
  target_compile_options(LathePch PUBLIC -fno-sanitize=bool)
endif()
# CMake would also include the header itself by its absolute path, which the precompiled one already holds: without it two checkouts give a
# compiler cache the same command line.
set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -include-pch -Xclang <PCH_FILE>)
target_precompile_headers(LathePch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/Pch.h)

# All TableGen outputs hang on this target; every MLIR library depends on it.
add_custom_target(LatheTableGen)

# lathe_tablegen(TD OUT args...): one TableGen output below build/include.
function(lathe_tablegen td out)
  set(LLVM_TARGET_DEFINITIONS ${CMAKE_CURRENT_SOURCE_DIR}/${td})
  get_filename_component(dir ${CMAKE_BINARY_DIR}/include/${out} DIRECTORY)
  file(MAKE_DIRECTORY ${dir}) # mlir_tablegen does not create it
  file(RELATIVE_PATH rel ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_BINARY_DIR}/include/${out})
  set(TABLEGEN_OUTPUT)
  mlir_tablegen(${rel} ${ARGN} EXTRA_INCLUDES ${CMAKE_SOURCE_DIR} ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  string(MAKE_C_IDENTIFIER "tblgen_${out}" target)
  add_custom_target(${target} DEPENDS ${TABLEGEN_OUTPUT})
  add_dependencies(LatheTableGen ${target})
endfunction()

# lathe_add_mlir_library(NAME sources... [LIBS libs...]): compiler code. -O1: the hot code is
# what the compiler emits, higher levels only cost build time.
function(lathe_add_mlir_library name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC ${ARG_LIBS} LathePch)
  add_dependencies(${name} LatheTableGen)
  target_precompile_headers(${name} REUSE_FROM LathePch)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# lathe_add_mlir_tool(NAME sources... [LIBS libs...]): an executable over MLIR libraries.
function(lathe_add_mlir_tool name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} LathePch)
  add_dependencies(${name} LatheTableGen)
  target_precompile_headers(${name} REUSE_FROM LathePch)
  # The header was precompiled with -fPIC; CMake would give an executable -fPIE.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# Documents of all dialects and passes, out of TableGen: target lathe-docs, files below build/docs.
set(all)
if(LATHE_BUILD_COMPILER)
  set(all ALL)
endif()
add_custom_target(lathe-docs ${all})
function(lathe_tablegen_doc td out)
  set(output ${CMAKE_BINARY_DIR}/docs/${out})
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/docs
    COMMAND ${MLIR_TABLEGEN_EXE} ${ARGN} -I ${CMAKE_SOURCE_DIR} -I ${CMAKE_SOURCE_DIR}/include "-I$<JOIN:${MLIR_INCLUDE_DIRS},;-I>" -o ${output} -d ${output}.d
      ${CMAKE_SOURCE_DIR}/${td}
    DEPENDS ${CMAKE_SOURCE_DIR}/${td} DEPFILE ${output}.d COMMAND_EXPAND_LISTS VERBATIM)
  string(MAKE_C_IDENTIFIER "doc_${out}" target)
  add_custom_target(${target} DEPENDS ${output})
  add_dependencies(lathe-docs ${target})
endfunction()
lathe_tablegen_doc(dialects/LLM/LLMOps.td llm-dialect.md -gen-dialect-doc -dialect=llm)
lathe_tablegen_doc(dialects/ONNX/ONNXOps.td onnx-dialect.md -gen-dialect-doc -dialect=onnx)
lathe_tablegen_doc(dialects/Kernel/KernelOps.td kernel-dialect.md -gen-dialect-doc -dialect=kernel)
lathe_tablegen_doc(dialects/Plan/PlanOps.td plan-dialect.md -gen-dialect-doc -dialect=plan)
lathe_tablegen_doc(include/lathe/Transforms/Passes.td llm-passes.md -gen-pass-doc)
lathe_tablegen_doc(include/lathe/Conversion/Passes.td conversion-passes.md -gen-pass-doc)
