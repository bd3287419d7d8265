//===- ONNXInterpreter.h - the reference interpreter of onnx graphs -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Says what an onnx graph means: plain loops, values in double (64-bit integers for integer types), rounded to the element type after every
// operator. The oracle of general code; it shares no arithmetic with it. Shapes come from the operators' type functions (lib/ONNXOps),
// which run on the actual sizes first, so that nothing here sees a tensor that does not fit.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/ONNX/Hooks.h"
#include "mlir/IR/BuiltinOps.h"

namespace lathe::interp {

/// Runs one node. Null inputs are absent. Errors: unsupported (no such operator here), invalidArgument (what does not fit, a result of more than
/// |mostElements|).
Status evaluateONNX(onnx::NodeOp op, llvm::ArrayRef<const onnx::HostTensor *> inputs, llvm::MutableArrayRef<onnx::HostTensor> outputs, int64_t mostElements);

/// Runs `func @main` of |module|; one tensor for each argument, in order.
Result<std::vector<onnx::HostTensor>> runONNX(mlir::ModuleOp module, const std::vector<onnx::HostTensor> &inputs);

/// Makes type inference and evaluation the hooks of every operator that general code covers. Call once, before passes run.
void registerONNXHooks();

} // namespace lathe::interp
