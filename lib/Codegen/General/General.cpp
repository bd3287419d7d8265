//===- General.cpp - general graphs to machine code ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Codegen/General.h"
#include "General/Wrapper.h"
#include "X86/Compile.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

namespace lathe::codegen {
using namespace mlir;

/// Copies between layouts become loops: upstream would call a function of its runner library.
static void copyByLoops(ModuleOp module) {
  module.walk([](memref::CopyOp op) {
    auto from = cast<MemRefType>(op.getSource().getType()), to = cast<MemRefType>(op.getTarget().getType());
    if (from.getLayout().isIdentity() && to.getLayout().isIdentity()) return;
    OpBuilder b(op);
    linalg::makeMemRefCopyOp(b, op.getLoc(), op.getSource(), op.getTarget());
    op.erase();
  });
}

/// All canonicalizations but those of tensor.generate: they repeat the body of one tensor at every read of an element. Of a softmax's sum, which is read
/// once for each of its summands, that makes work of the third power of the tokens.
static LogicalResult canonicalizeTensors(ModuleOp module) {
  MLIRContext *context = module.getContext();
  RewritePatternSet patterns(context);
  for (Dialect *dialect : context->getLoadedDialects())
    dialect->getCanonicalizationPatterns(patterns);
  for (RegisteredOperationName op : context->getRegisteredOperations())
    if (op.getStringRef() != tensor::GenerateOp::getOperationName()) op.getCanonicalizationPatterns(patterns, context);
  return applyPatternsGreedily(module, std::move(patterns));
}

static LogicalResult lowerGraph(ModuleOp module) {
  bool results = false;
  SmallVector<int64_t> interface;
  if (auto graph = module.lookupSymbol<func::FuncOp>("graph")) {
    graph->setAttr("llvm.emit_c_interface", UnitAttr::get(module.getContext()));
    results = graph.getNumResults() > 0;
    interface = graphInterface(graph.getFunctionType());
    // The attributes of arguments are for people and for the artifact; LLVM knows none of them.
    for (unsigned i = 0; i < graph.getNumArguments(); ++i)
      for (NamedAttribute a : llvm::to_vector(graph.getArgAttrDict(i).getValue()))
        if (a.getName() != "bufferization.writable") graph.removeArgAttr(i, a.getName());
    for (unsigned i = 0; i < graph.getNumResults(); ++i)
      for (NamedAttribute a : graph.getResultAttrDict(i) ? llvm::to_vector(graph.getResultAttrDict(i).getValue()) : SmallVector<NamedAttribute>())
        graph.removeResultAttr(i, a.getName());
  }
  module->removeAttr("lathe.checks");
  module->removeAttr("onnx.model");
  PassManager pm(module.getContext());
  pm.enableVerifier(true);
  (void)canonicalizeTensors(module); // as far as it comes: what is left is sound
  pm.addPass(createCSEPass());
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  bufferize.allowReturnAllocsFromLoops = true;
  bufferize.functionBoundaryTypeConversion = bufferization::LayoutMapOption::IdentityLayoutMap;
  bufferize.unknownTypeConversion = bufferization::LayoutMapOption::IdentityLayoutMap;
  pm.addPass(bufferization::createOneShotBufferizePass(bufferize));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(memref::createExpandReallocPass());
  bufferization::BufferDeallocationPipelineOptions deallocate;
  bufferization::buildBufferDeallocationPipeline(pm, deallocate);
  pm.addPass(createConvertBufferizationToMemRefPass());
  if (failed(pm.run(module))) return failure();
  copyByLoops(module);
  pm.clear();
  pm.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createLoopInvariantCodeMotionPass());
  pm.addPass(arith::createArithExpandOpsPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertMathToLibmPass());
  FinalizeMemRefToLLVMConversionPassOptions memory;
  memory.useGenericFunctions = true;
  pm.addPass(createFinalizeMemRefToLLVMConversionPass(memory));
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  if (failed(pm.run(module))) return failure();
  if (results)
    if (Operation *entry = module.lookupSymbol("_mlir_ciface_graph")) entry->setAttr("lathe.results", UnitAttr::get(module.getContext()));
  LogicalResult made = addGraphEntry(module, interface);
  if (Operation *entry = module.lookupSymbol("_mlir_ciface_graph")) entry->removeAttr("lathe.results");
  return made;
}

Result<std::string> compileGraph(ModuleOp module, X86Target target) {
  std::string complaints;
  {
    ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
      if (d.getSeverity() != DiagnosticSeverity::Error) return success();
      llvm::raw_string_ostream os(complaints);
      os << (complaints.empty() ? "" : "; ") << d;
      return success();
    });
    if (failed(lowerGraph(module))) return makeError(StatusCode::internal, "cannot lower the graph: %s", complaints.c_str());
  }
  return compileObject(module, target, ObjectOptions{.loops = true});
}

Result<std::string> linkGraph(const std::string &object) { return linkObjects({object}, {"libm.so.6", "libc.so.6"}); }

} // namespace lathe::codegen
