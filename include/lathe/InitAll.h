//===- InitAll.h - every dialect and pass of Lathe ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
namespace mlir {
class DialectRegistry;
}

namespace lathe {
/// llm, kernel, plan and the upstream dialects that Lathe's passes create or parse.
void registerAllDialects(mlir::DialectRegistry &registry);
/// Passes and named pipelines. Not thread-safe; call once, before a command line is parsed.
void registerAllPasses();
} // namespace lathe
