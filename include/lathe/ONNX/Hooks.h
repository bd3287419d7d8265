//===- Hooks.h - what Lathe can do with an ONNX operator ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The file that implements an operator registers its hooks under the operator's name; passes look them up. An operator without a
// hook is valid in the dialect and refused by the pass that needs it.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/ONNX/ONNX.h"
#include "lathe/base/Status.h"

namespace lathe::onnx {

/// A tensor in memory. Elements in row-major order, little-endian, in the type's size; types below 8 bits and bool take a byte each.
struct HostTensor {
  DataType type = DataType::undefined;
  std::vector<int64_t> shape;
  std::vector<uint8_t> data;
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t size : shape)
      n *= size;
    return n;
  }
};

/// Types of the results from the types of the inputs; the op's own result types are not looked at. Errors name what does not fit.
using InferTypes = Status (*)(NodeOp op, llvm::SmallVectorImpl<mlir::Type> &results);
/// Runs the operator. Null inputs are absent. |outputs| has one entry for every result of |op|. The inputs' types and shapes may be anything:
/// what does not fit is an error, and so is a result of more than |mostElements|.
using Evaluate = Status (*)(NodeOp op, llvm::ArrayRef<const HostTensor *> inputs, llvm::MutableArrayRef<HostTensor> outputs, int64_t mostElements);

struct Hooks {
  InferTypes inferTypes = nullptr;
  Evaluate evaluate = nullptr;
};

/// Adds the non-null hooks to those of the operator. Call before passes run; not thread-safe.
void registerHooks(llvm::StringRef domain, llvm::StringRef name, const Hooks &hooks);
/// Empty hooks when nothing was registered. Thread-safe after registration.
Hooks findHooks(llvm::StringRef domain, llvm::StringRef name);

} // namespace lathe::onnx
