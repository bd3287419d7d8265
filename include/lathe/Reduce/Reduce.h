//===- Reduce.h - reductions of the llm dialect ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
namespace mlir {
class DialectRegistry;
}

namespace lathe {
/// Teaches `lathe-reduce` about the llm dialect: an op that has an operand of its result's type becomes that operand (a layer
/// falls away piece by piece), and an llm.fused becomes its body. Params are left to `--opt-reduction-pass='opt-pass=llm-drop-unused ...'`.
void registerReductions(mlir::DialectRegistry &registry);
} // namespace lathe
