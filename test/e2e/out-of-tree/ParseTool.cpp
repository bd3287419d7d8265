//===- ParseTool.cpp - the smallest tool over Lathe's libraries -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// parse-tool FILE prints the types and symbols of llm.param ops: parsing needs the dialect with its attributes and types.
//===----------------------------------------------------------------------===//
#include "dialects/LLM/LLM.h"
#include "lathe/InitAll.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  mlir::DialectRegistry registry;
  lathe::registerAllDialects(registry);
  lathe::registerAllPasses(); // its archives with all that they need link too
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(argv[1], &context);
  if (!module) return 1;
  for (auto param : module->getOps<lathe::llm::ParamOp>()) llvm::outs() << param.getSymName() << '\n';
  return 0;
}
