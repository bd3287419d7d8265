//===- General.cpp - general graphs to machine code ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Codegen/General.h"
#include "General/Kernels.h"
#include "General/Loops.h"
#include "General/Outline.h"
#include "General/Wrapper.h"
#include "X86/Compile.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
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

/// Sums become the innermost loops, so that the loops around them are parallel. Each element keeps the order of its sum.
static LogicalResult sumsInside(ModuleOp module) {
  SmallVector<linalg::GenericOp> generics;
  module.walk([&](linalg::GenericOp op) { generics.push_back(op); });
  IRRewriter rewriter(module.getContext());
  for (linalg::GenericOp op : generics) {
    SmallVector<unsigned> order, sums;
    for (auto [i, kind] : llvm::enumerate(op.getIteratorTypesArray()))
      (kind == mlir::utils::IteratorType::reduction ? sums : order).push_back(i);
    llvm::append_range(order, sums);
    if (llvm::is_sorted(order)) continue;
    rewriter.setInsertionPoint(op);
    if (failed(linalg::interchangeGenericOp(rewriter, op, order))) return failure();
  }
  return success();
}

/// Memory that only the host reads and writes, such as the sizes of a reshape, stays the host's.
static void keepOnStack(ModuleOp module) {
  module.walk([](memref::AllocOp op) {
    if (!isa<func::FuncOp>(op->getParentOp()) || !op.getType().hasStaticShape() || op.getType().getNumElements() > 64) return;
    SmallVector<Operation *> releases;
    for (OpOperand &use : op->getUses()) {
      Operation *user = use.getOwner();
      bool shape = isa<memref::ReshapeOp>(user) && use.getOperandNumber() == 1, stored = isa<memref::StoreOp>(user) && use.getOperandNumber() == 0;
      if (isa<memref::DeallocOp>(user)) releases.push_back(user);
      else if (stored || !(shape || isa<memref::LoadOp, memref::StoreOp>(user))) return;
    }
    for (Operation *o : releases)
      o->erase();
    OpBuilder b(op);
    op.replaceAllUsesWith(memref::AllocaOp::create(b, op.getLoc(), op.getType()).getResult());
    op.erase();
  });
}

/// With |kernels|, loops become kernels of a GPU and the rest what the host does.
static LogicalResult lowerGraph(ModuleOp module, GraphKernels *kernels = nullptr) {
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
  if (kernels) {
    if (failed(sumsInside(module))) return failure();
    pm.addNestedPass<func::FuncOp>(createConvertLinalgToParallelLoopsPass());
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
    pm.addPass(createLoopInvariantCodeMotionPass());
    if (failed(pm.run(module))) return failure();
    pm.clear();
    *kernels = outlineKernels(module);
    keepOnStack(module);
  } else {
    pm.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass());
    if (failed(pm.run(module))) return failure();
    pm.clear();
    outlineLoops(module);
  }
  addLoweringToLLVM(pm, /*host=*/true);
  if (kernels) pm.addPass(createCanonicalizerPass()); // addresses lead back to their allocation
  if (failed(pm.run(module))) return failure();
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    if (function.getSymName().starts_with(graphLoop)) function.setNoInline(true); // or it would be part of one large function again
  if (results)
    if (Operation *entry = module.lookupSymbol("_mlir_ciface_graph")) entry->setAttr("lathe.results", UnitAttr::get(module.getContext()));
  LogicalResult made = addGraphEntry(module, interface, kernels != nullptr);
  if (Operation *entry = module.lookupSymbol("_mlir_ciface_graph")) entry->removeAttr("lathe.results");
  return made;
}

/// lowerGraph() with what it complains about.
static Status lowered(ModuleOp module, GraphKernels *kernels = nullptr) {
  std::string complaints;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
    if (d.getSeverity() != DiagnosticSeverity::Error) return success();
    llvm::raw_string_ostream os(complaints);
    os << (complaints.empty() ? "" : "; ") << d;
    return success();
  });
  if (failed(lowerGraph(module, kernels))) return makeError(StatusCode::internal, "cannot lower the graph: %s", complaints.c_str());
  return Status();
}

Result<std::string> compileGraph(ModuleOp module, X86Target target) {
  LATHE_RETURN_IF_ERROR(lowered(module));
  return compileObject(module, target, ObjectOptions{.loops = true});
}

Result<GpuGraph> compileGraphForGpu(ModuleOp module, artifact::Variant variant) {
  GraphKernels kernels;
  LATHE_RETURN_IF_ERROR(lowered(module, &kernels));
  GpuGraph graph;
  graph.kernels = std::move(kernels.names);
  LATHE_ASSIGN_OR_RETURN(graph.ptx, graphKernelsToPtx(*kernels.module, variant));
  // Every machine that Lathe runs on has AVX2, and the host has little to compute.
  LATHE_ASSIGN_OR_RETURN(graph.object, compileObject(module, X86Target{artifact::Variant::avx2}, ObjectOptions{.loops = true}));
  return graph;
}

Result<std::string> linkGraph(const std::string &object) { return linkObjects({object}, {"libm.so.6", "libc.so.6"}); }

} // namespace lathe::codegen
