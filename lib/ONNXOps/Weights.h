//===- Weights.h - the values of params ----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/ONNX/Numbers.h"

namespace lathe::ops {

/// The tensor of an onnx.param: |value| is its #onnx.file or dense value. Types below 8 bits are unpacked to a byte an element.
/// dataLoss: the file is shorter than it was.
Result<onnx::HostTensor> readWeight(mlir::Type type, mlir::Attribute value);

/// A dense value of numbers in memory.
onnx::HostTensor hostTensor(mlir::DenseElementsAttr value);

using onnx::elementBytes;

} // namespace lathe::ops
