//===- Passes.h - conversions between dialects ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/Pass/Pass.h"
#include <memory>

namespace lathe {
#define GEN_PASS_DECL
#include "lathe/Conversion/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "lathe/Conversion/Passes.h.inc"
} // namespace lathe
