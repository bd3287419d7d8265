//===- lathe-lsp-server.cpp - editing .mlir files with Lathe's dialects -----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Speaks the language server protocol on standard input and output: verification while one types, definitions and uses.
//===----------------------------------------------------------------------===//
#include "lathe/InitAll.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  lathe::registerAllDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
