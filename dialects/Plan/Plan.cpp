//===- Plan.cpp - the plan dialect ------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "dialects/Plan/Plan.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace lathe::plan;

#include "dialects/Plan/PlanDialect.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/Plan/PlanOps.cpp.inc"

void PlanDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/Plan/PlanOps.cpp.inc"
      >();
}
