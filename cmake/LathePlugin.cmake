# lathe_add_pass_plugin(NAME sources...): a shared object for `lathe-opt --load-pass-plugin`.
# It takes headers and flags but no library: dialects and MLIR are those of the lathe-opt that loads it. A second copy of a dialect
# would have TypeIDs of its own, and no op would match any more.
function(lathe_add_pass_plugin name)
  add_library(${name} MODULE ${ARGN})
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS)
    set_property(TARGET ${name} APPEND PROPERTY ${property} $<TARGET_PROPERTY:Lathe::MLIR,INTERFACE_${property}>)
  endforeach()
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE -fno-exceptions)
  set_target_properties(${name} PROPERTIES PREFIX "")
endfunction()
