//===- View.h - the view of an onnx.op -----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "ONNXOps/Node.h"
#include "dialects/ONNX/ONNX.h"

namespace lathe::ops {

/// Valid as long as the op.
NodeView viewOf(onnx::NodeOp op);

} // namespace lathe::ops
