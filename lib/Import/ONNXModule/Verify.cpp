//===- Verify.cpp - what an importer made -------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Verify.h"
#include "lathe/import/Quote.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

namespace lathe {
using namespace mlir;

Status verifyImported(ModuleOp module) {
  std::string message;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    if (!message.empty()) return success();
    if (auto name = diagnostic.getLocation()->findInstanceOf<NameLoc>()) message = quoteName(name.getName().str()) + ": ";
    message += diagnostic.str();
    return success();
  });
  if (succeeded(verify(module))) return Status();
  return Status(StatusCode::invalidArgument, "what was imported does not verify: " + message);
}

} // namespace lathe
