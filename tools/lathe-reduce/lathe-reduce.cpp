//===- lathe-reduce.cpp - makes a failing module small ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// lathe-reduce big.mlir --reduction-tree='traversal-mode=0 test=SCRIPT' prints a smaller module for which SCRIPT FILE
// still exits with 1.
//===----------------------------------------------------------------------===//
#include "lathe/InitAll.h"
#include "lathe/Reduce/Reduce.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  lathe::registerAllDialects(registry);
  lathe::registerReductions(registry);
  lathe::registerAllPasses(); // for --opt-reduction-pass
  mlir::MLIRContext context(registry);
  return mlir::failed(mlir::mlirReduceMain(argc, argv, context));
}
