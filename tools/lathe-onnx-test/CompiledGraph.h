//===- CompiledGraph.h - general code, compiled and called in process -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/ONNX/Hooks.h"
#include "lathe/artifact/Format.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/device/cpu/GraphCall.h"

namespace lathe::onnxtest {

class CompiledGraph {
public:
  CompiledGraph(CompiledGraph &&) = default;
  /// Lowers and compiles |module| (func @main of onnx ops) for this machine, or for |gpu| on the emulator, and enters the code.
  static Result<CompiledGraph> compile(mlir::ModuleOp module, artifact::Variant gpu = artifact::Variant::none);
  /// invalidArgument with the check's text when the code refuses the inputs.
  Result<std::vector<onnx::HostTensor>> run(const std::vector<onnx::HostTensor> &inputs) const;

private:
  CompiledGraph() = default;
  struct Port {
    onnx::DataType type;
    std::vector<int64_t> shape; ///< -1: any
  };
  std::shared_ptr<void> library;
  LatheGraphFn function = nullptr;
  std::unique_ptr<runtime::GraphMemory> memory;
  std::vector<Port> inputs, outputs;
  std::vector<onnx::HostTensor> weights;
  std::vector<std::string> checks;
};

} // namespace lathe::onnxtest
