//===- CompiledGraph.h - general code, compiled and called in process -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/ONNX/Hooks.h"
#include "lathe/artifact/Graph.h"
#include "mlir/IR/BuiltinOps.h"

namespace lathe::onnxtest {

class CompiledGraph {
public:
  /// Lowers and compiles |module| (func @main of onnx ops) for this machine, and enters the code.
  static Result<CompiledGraph> compile(mlir::ModuleOp module);
  /// invalidArgument with the check's text when the code refuses the inputs.
  Result<std::vector<onnx::HostTensor>> run(const std::vector<onnx::HostTensor> &inputs) const;

private:
  struct Port {
    onnx::DataType type;
    std::vector<int64_t> shape; ///< -1: any
  };
  LatheGraphFn function = nullptr;
  std::vector<Port> inputs, outputs;
  std::vector<onnx::HostTensor> weights;
  std::vector<std::string> checks;
};

} // namespace lathe::onnxtest
