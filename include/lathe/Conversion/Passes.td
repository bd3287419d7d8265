//===- Passes.td - conversions between dialects ---------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#ifndef LATHE_CONVERSION_PASSES_TD
#define LATHE_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def LLMToKernelPass : Pass<"llm-to-kernel", "::mlir::ModuleOp"> {
  let summary = "lower the step from llm ops to kernel calls";
  let description = [{
    Every op of `func @step` becomes a kernel call; an `llm.fused` of a known shape becomes one call. Weights become `kernel.packed` and
    `kernel.vector` symbols, each once however often it is used.

    Before: `%y = llm.linear %q, %w : ...`. After: `%y = kernel.matmul %q weights [@packed.w] columns [0] : ...`.
  }];
  let dependentDialects = ["::lathe::kernel::KernelDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
}

def KernelToPlanPass : Pass<"kernel-to-plan", "::mlir::ModuleOp"> {
  let summary = "lay the step out: arena offsets, launches, row buckets";
  let description = [{
    Kernel calls become launches of deduplicated kernels. Buffers get offsets by lifetime; buckets of few rows split attention by chunks of history. The
    body of the step and its head become two entries.

    Before: `%y = kernel.norm %x weight @n eps 1.0e-5 : ...`. After: `plan.launch "norm" @k3 [@b0, @n, @b1] + [0, 0, 0] ...` with `plan.kernel @k3 family "norm" {...}`.
  }];
  let dependentDialects = ["::lathe::plan::PlanDialect"];
  let options = [
    Option<"maxRows", "max-rows", "int64_t", "512", "rows of one step">,
    Option<"maxSeq", "max-seq", "int64_t", "0", "positions; 0: max_sequence of the module's llm.model attribute">,
    Option<"chunk", "chunk", "int64_t", "256", "tokens of history per attention chunk">,
    Option<"splitRows", "split-rows", "int64_t", "64", "rows up to which attention is split by chunks (fewer where partials would take more than 64 MB; on a GPU 16); 0: never">,
    Option<"logitBytes", "logit-bytes", "int64_t", "16777216", "largest logits buffer">,
    Option<"gpu", "gpu", "bool", "false", "lay out and launch for NVIDIA GPUs: their activation layout, blocks instead of items, more buckets">,
  ];
  let statistics = [
    Statistic<"numKernels", "kernels", "distinct kernels">,
    Statistic<"numLaunches", "launches", "launches of all buckets">,
    Statistic<"arenaBytes", "arena-bytes", "bytes of the arena">,
  ];
}

def PlanVerifyPass : Pass<"plan-verify", "::mlir::ModuleOp"> {
  let summary = "prove that no two live buffers overlap and that the peak is what the program claims";
  let description = [{
    Independent of the planner: checks every pair of buffers with overlapping lifetimes, every launch's arguments and order, and that the largest end of a
    buffer equals the program's arena size.

    Before and after are equal; a violation is an error at the buffer.
  }];
  let statistics = [Statistic<"numPairs", "pairs", "pairs of buffers compared">];
}

def ONNXRaisePass : Pass<"onnx-raise", "::mlir::ModuleOp"> {
  let summary = "turn an ONNX graph of a language model into the llm dialect's step";
  let description = [{
    Runs `func @main` for a few sizes: shapes, masks, positions and rotary tables become numbers, whatever nodes an exporter wrote for them, and what remains
    are terms over token rows (docs/onnx.md). When all of them make up a decoder, with causal attention over a cache, the module becomes the
    one that the other importers make of the same weights. When anything is left, the module stays as it is, with a warning that says what
    was not recognised and why. `remarks` says what each layer is.

    Before: `func @main` of onnx ops, padded [batch, sequence, hidden] tensors, masks, a past. After: `func @step(!llm.batch, !llm.kv)`.
  }];
  let dependentDialects = ["::lathe::llm::LLMDialect", "::mlir::func::FuncDialect"];
  let options = [
    Option<"maxSeq", "max-seq", "int64_t", "0", "positions to make the module for; 0: the model's own">,
    Option<"remarks", "remarks", "bool", "false", "emit a remark for every layer and every table that became a formula">,
  ];
  let statistics = [
    Statistic<"numRaised", "raised", "graphs turned into a step">,
    Statistic<"numLayers", "layers", "layers of raised graphs">,
  ];
}

def ONNXToLinalgPass : Pass<"onnx-to-linalg", "::mlir::ModuleOp"> {
  let summary = "lower an onnx graph to loops over tensors";
  let description = [{
    `func @main` of onnx ops becomes `func @graph` of tensor, linalg, scf, arith and math ops, whatever its sizes: what types do not
    say is computed when the code runs. Types in memory are storage types (bool and types below 8 bits are bytes, bfloat16 and 8-bit floats their
    bits); `lathe.type` keeps the element types. Weights become arguments after those of the graph. What only a run can find wrong calls
    `lathe_graph_fail(i)`; text i is in the module's `lathe.checks`.

    Before: `%c = onnx.op "Add"(%a, %b) {...}`. After: `%c = tensor.generate %n { ... arith.addf ... }`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::bufferization::BufferizationDialect", "::mlir::func::FuncDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
  let statistics = [Statistic<"numChecks", "checks", "conditions that are checked when the code runs">];
}

#endif
