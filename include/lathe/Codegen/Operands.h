//===- Operands.h - which weights meet which activations -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One rule for every target: the planner asks it with the weight's name at hand, the emitters again for whoever calls them. Plain C++.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Layout.h"
#include "lathe/artifact/Packing.h"

namespace lathe::codegen {

/// What is wrong with a matmul of weights of |type| and activations of |act|, whatever the target; null: nothing. Integer products need integer codes.
/// Activations of e4m3 round to 3 bits of fraction: that buys the products of 8-bit floats that GPUs have for two operands of 8 bits, and nothing beside other weights.
constexpr const char *operandError(StorageType type, ActFormat act) {
  PackedLayout w = packedLayout(type);
  if (w.isFloat() && isInt8(act)) return "expected f32 or bf16 activations for float weights, found int8";
  if (act == ActFormat::e4m3 && !w.e4m3) return "expected e4m3 weights for e4m3 activations";
  return nullptr;
}

} // namespace lathe::codegen
