//===- PlanOptions.h - what kernel-to-plan is asked for -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"
#include <string>

namespace lathe {

/// The name of the tensor or layer at |loc|, of several joined by '+'; empty: it has none.
inline std::string layerName(mlir::Location loc) {
  if (auto name = mlir::dyn_cast<mlir::NameLoc>(loc)) return name.getName().str();
  if (auto fused = mlir::dyn_cast<mlir::FusedLoc>(loc)) {
    std::string all;
    for (mlir::Location part : fused.getLocations()) {
      std::string one = layerName(part);
      if (one.empty()) continue;
      all += (all.empty() ? "" : "+") + one;
    }
    return all;
  }
  if (auto call = mlir::dyn_cast<mlir::CallSiteLoc>(loc)) return layerName(call.getCallee());
  return "";
}

/// What the pass was asked for.
struct PlanOptions {
  int64_t maxRows, maxSeq, chunk, splitRows, logitBytes;
  bool gpu;
  int64_t draftMaxSeq; ///< positions that the draft was made for
  DraftMethod draftMethod = DraftMethod::program;
  mlir::DenseIntElementsAttr draftTokens = {}; ///< of a reduced vocabulary, or null
};

} // namespace lathe
