//===- Kernels.cpp - kernels of a general graph to PTX ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "General/Kernels.h"
#include "NVPTX/Lower.h"
#include "lathe/artifact/Graph.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/Module.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/SourceMgr.h"

namespace lathe::codegen {
using namespace mlir;

/// DeviceMath.c as LLVM IR.
static const char deviceMath[] =
#include "DeviceMath.inc"
    ;

/// The function of DeviceMath.c that stands for |op|; empty where PTX has an instruction.
static StringRef deviceFunction(Operation *op) {
  return llvm::TypeSwitch<Operation *, StringRef>(op)
      .Case<math::ExpOp>([](auto) { return "lathe_math_exp"; })
      .Case<math::LogOp>([](auto) { return "lathe_math_log"; })
      .Case<math::Log1pOp>([](auto) { return "lathe_math_log1p"; })
      .Case<math::PowFOp>([](auto) { return "lathe_math_pow"; })
      .Case<arith::RemFOp>([](auto) { return "lathe_math_fmod"; })
      .Case<math::SinOp>([](auto) { return "lathe_math_sin"; })
      .Case<math::CosOp>([](auto) { return "lathe_math_cos"; })
      .Case<math::TanOp>([](auto) { return "lathe_math_tan"; })
      .Case<math::AsinOp>([](auto) { return "lathe_math_asin"; })
      .Case<math::AcosOp>([](auto) { return "lathe_math_acos"; })
      .Case<math::AtanOp>([](auto) { return "lathe_math_atan"; })
      .Case<math::SinhOp>([](auto) { return "lathe_math_sinh"; })
      .Case<math::CoshOp>([](auto) { return "lathe_math_cosh"; })
      .Case<math::TanhOp>([](auto) { return "lathe_math_tanh"; })
      .Case<math::AsinhOp>([](auto) { return "lathe_math_asinh"; })
      .Case<math::AcoshOp>([](auto) { return "lathe_math_acosh"; })
      .Case<math::AtanhOp>([](auto) { return "lathe_math_atanh"; })
      .Case<math::ErfOp>([](auto) { return "lathe_math_erf"; })
      .Default([](auto) { return ""; });
}

static void callDeviceMath(ModuleOp module) {
  Type f64 = Float64Type::get(module.getContext());
  SmallVector<Operation *> found;
  module.walk([&](Operation *op) {
    if (!deviceFunction(op).empty()) found.push_back(op);
  });
  for (Operation *op : found) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    StringRef name = deviceFunction(op);
    SmallVector<Type> inputs(op->getNumOperands(), f64);
    if (!module.lookupSymbol(name)) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(module.getBody());
      func::FuncOp::create(b, loc, name, b.getFunctionType(inputs, {f64})).setPrivate();
    }
    Type type = op->getResult(0).getType();
    SmallVector<Value> operands;
    for (Value v : op->getOperands())
      operands.push_back(type == f64 ? v : arith::ExtFOp::create(b, loc, f64, v).getResult());
    Value y = func::CallOp::create(b, loc, name, TypeRange{f64}, operands).getResult(0);
    op->getResult(0).replaceAllUsesWith(type == f64 ? y : arith::TruncFOp::create(b, loc, type, y).getResult());
    op->erase();
  }
}

/// Links what of DeviceMath.c the kernels call.
static Status linkDeviceMath(llvm::Module &module) {
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> functions = llvm::parseAssemblyString(deviceMath, error, module.getContext());
  if (!functions) return makeError(StatusCode::internal, "DeviceMath.c: %s", error.getMessage().str().c_str());
  functions->setTargetTriple(module.getTargetTriple());
  functions->setDataLayout(module.getDataLayout());
  for (llvm::Function &f : *functions) // they are code for whatever chip the kernels are for
    for (const char *attribute : {"target-cpu", "target-features"})
      f.removeFnAttr(attribute);
  if (llvm::Linker::linkModules(module, std::move(functions), llvm::Linker::LinkOnlyNeeded)) return Status(StatusCode::internal, "DeviceMath.c cannot be linked");
  for (llvm::Function &f : module)
    if (!f.isDeclaration() && f.getCallingConv() != llvm::CallingConv::PTX_Kernel) {
      f.setLinkage(llvm::GlobalValue::InternalLinkage);
      f.addFnAttr(llvm::Attribute::NoInline); // once for all kernels: they are long
    }
  return Status();
}

void addLoweringToLLVM(OpPassManager &pm, bool host) {
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createLoopInvariantCodeMotionPass());
  pm.addPass(arith::createArithExpandOpsPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertMathToLLVMPass());
  if (host) pm.addPass(createConvertMathToLibmPass());
  FinalizeMemRefToLLVMConversionPassOptions memory;
  memory.useGenericFunctions = host;
  pm.addPass(createFinalizeMemRefToLLVMConversionPass(memory));
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
}

Result<std::string> graphKernelsToPtx(ModuleOp kernels, artifact::Variant variant) {
  const nvptx::Chip *chip = nvptx::findChip(variant);
  if (!chip) return makeError(StatusCode::internal, "no chip has the variant %u", unsigned(variant));
  callDeviceMath(kernels);
  std::string complaints;
  {
    ScopedDiagnosticHandler handler(kernels.getContext(), [&](Diagnostic &d) {
      if (d.getSeverity() == DiagnosticSeverity::Error) complaints += (complaints.empty() ? "" : "; ") + d.str();
      return success();
    });
    PassManager pm(kernels.getContext());
    addLoweringToLLVM(pm, /*host=*/false);
    if (failed(pm.run(kernels))) return makeError(StatusCode::internal, "cannot lower the graph's kernels: %s", complaints.c_str());
  }
  OpBuilder b(kernels.getContext());
  for (auto f : kernels.getOps<LLVM::LLVMFuncOp>()) {
    if (f.isExternal()) continue;
    f->setAttr("nvvm.kernel", b.getUnitAttr());
    f->setAttr("nvvm.reqntid", b.getDenseI32ArrayAttr({int32_t(graphBlockThreads)}));
  }
  return nvptx::lowerToPtx(kernels, *chip, linkDeviceMath);
}

} // namespace lathe::codegen
