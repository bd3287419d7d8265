//===- Hooks.cpp - registry of what is implemented -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/ONNX/Hooks.h"
#include "llvm/ADT/StringMap.h"

namespace lathe::onnx {

static llvm::StringMap<Hooks> &registry() {
  static llvm::StringMap<Hooks> hooks;
  return hooks;
}
static std::string key(llvm::StringRef domain, llvm::StringRef name) { return (domain + "::" + name).str(); }

void registerHooks(llvm::StringRef domain, llvm::StringRef name, const Hooks &hooks) {
  Hooks &known = registry()[key(domain, name)];
  if (hooks.inferTypes) known.inferTypes = hooks.inferTypes;
  if (hooks.evaluate) known.evaluate = hooks.evaluate;
}

Hooks findHooks(llvm::StringRef domain, llvm::StringRef name) { return registry().lookup(key(domain, name)); }

} // namespace lathe::onnx
