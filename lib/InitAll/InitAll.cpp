//===- InitAll.cpp ----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/InitAll.h"
#include "dialects/Kernel/Kernel.h"
#include "dialects/LLM/LLM.h"
#include "dialects/ONNX/ONNX.h"
#include "dialects/Plan/Plan.h"
#include "lathe/Codegen/General.h"
#include "lathe/Conversion/Passes.h"
#include "lathe/Interpreter/ONNXInterpreter.h"
#include "lathe/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/Passes.h"

void lathe::registerAllDialects(mlir::DialectRegistry &registry) {
  static bool hooks = (interp::registerONNXHooks(), true); // once in a process
  (void)hooks;
  codegen::registerGeneralDialects(registry);
  registry.insert<llm::LLMDialect, kernel::KernelDialect, plan::PlanDialect, onnx::ONNXDialect, mlir::arith::ArithDialect, mlir::func::FuncDialect, mlir::LLVM::LLVMDialect,
                  mlir::math::MathDialect, mlir::scf::SCFDialect, mlir::vector::VectorDialect>();
}

void lathe::registerAllPasses() {
  registerLatheConversionPasses();
  mlir::registerTransformsPasses(); // canonicalize, cse, ...
  registerLatheTransformsPasses();
  registerLLMPipeline();
}
