# Install rules and the CMake package: `cmake --install build --prefix P`, then find_package(Lathe) with P in CMAKE_PREFIX_PATH.
# The package has two components: Runtime (the C interface; needs nothing of LLVM) and Compiler (pass developers and tools; MLIR 22.1).
include(CMakePackageConfigHelpers)
set(package_dir lib/cmake/Lathe)

set_target_properties(lathe_c PROPERTIES EXPORT_NAME Runtime)
install(TARGETS lathe_c EXPORT LatheRuntimeTargets LIBRARY DESTINATION lib INCLUDES DESTINATION include)
install(EXPORT LatheRuntimeTargets NAMESPACE Lathe:: DESTINATION ${package_dir})

if(LATHE_BUILD_COMPILER)
  # What lathe_add_* knows as LatheLLM is Lathe::LLM outside. All that the roots are made of goes along.
  set(queue LatheInitAll LatheInterpreter LatheImport LatheReduce LatheDriver)
  set(libraries)
  while(queue)
    list(POP_FRONT queue library)
    if(library IN_LIST libraries)
      continue()
    endif()
    list(APPEND libraries ${library})
    get_target_property(used ${library} INTERFACE_LINK_LIBRARIES)
    string(REGEX MATCHALL "Lathe[A-Za-z0-9]+" used "${used}") # a private one is wrapped in $<LINK_ONLY:...>
    list(APPEND queue ${used})
  endwhile()
  foreach(library ${libraries})
    string(REGEX REPLACE "^Lathe" "" name ${library})
    set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
  endforeach()
  set_target_properties(LathePch PROPERTIES EXPORT_NAME MLIR) # outside it only carries the flags and libraries of MLIR
  install(TARGETS ${libraries} EXPORT LatheCompilerTargets ARCHIVE DESTINATION lib/lathe INCLUDES DESTINATION include)
  install(EXPORT LatheCompilerTargets NAMESPACE Lathe:: DESTINATION ${package_dir})

  install(TARGETS lathe-opt lathe-interp lathe-reduce lathe-lsp-server RUNTIME DESTINATION bin)
  install(TARGETS lathe-compiler RUNTIME DESTINATION libexec) # `lathe` looks for ../libexec/lathe-compiler
  set_target_properties(lathe-opt lathe-interp lathe-reduce lathe-lsp-server lathe-compiler PROPERTIES
    INSTALL_RPATH ${LLVM_LIBRARY_DIR})

  # TableGen files too: another dialect may build on these. The generated headers lie beside them.
  install(DIRECTORY include/lathe DESTINATION include FILES_MATCHING PATTERN "*.h" PATTERN "*.td")
  install(DIRECTORY dialects DESTINATION include FILES_MATCHING PATTERN "*.h" PATTERN "*.td")
  install(DIRECTORY ${CMAKE_BINARY_DIR}/include/ DESTINATION include FILES_MATCHING PATTERN "*.inc")
endif()

configure_package_config_file(cmake/LatheConfig.cmake.in ${CMAKE_BINARY_DIR}/LatheConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/LatheConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/LatheConfig.cmake ${CMAKE_BINARY_DIR}/LatheConfigVersion.cmake cmake/LathePlugin.cmake
  DESTINATION ${package_dir})
