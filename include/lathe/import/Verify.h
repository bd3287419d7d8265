//===- Verify.h - what an importer made --------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"

namespace lathe {

/// Runs the verifier on |module|, made from a user's file. invalidArgument: the first thing it says, behind the name of the node, layer or weight at
/// whose place it says it. Not thread-safe for one context.
Status verifyImported(mlir::ModuleOp module);

} // namespace lathe
