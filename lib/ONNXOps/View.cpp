//===- View.cpp -----------------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/View.h"

namespace lathe::ops {
using namespace mlir;

NodeView viewOf(onnx::NodeOp op) {
  std::string name = op.getOpType().str();
  if (auto named = op->getLoc()->findInstanceOf<NameLoc>()) name = named.getName().str();
  return {name, op.getOpType().str(), op.getDomain().str(), int64_t(op.getVersion()), op.getAttrs(), op.getLoc()};
}

} // namespace lathe::ops
