//===- PlanOptions.h - what kernel-to-plan is asked for -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Kernels.h"
#include "lathe/artifact/Program.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"
#include <algorithm>
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

/// Bytes of one row's partials of split attention.
inline int64_t partialRowBytes(int64_t heads, int64_t valueDim, int64_t chunks) {
  codegen::AttentionParams p;
  p.qHeads = heads, p.valueDim = valueDim, p.maxChunks = chunks;
  return static_cast<int64_t>(codegen::partialsBytes(p, 1));
}

/// What the pass was asked for.
struct PlanOptions {
  int64_t maxRows, maxSeq, chunk, splitRows, logitBytes;
  bool gpu;
  int64_t draftMaxSeq; ///< positions that the draft was made for
  DraftMethod draftMethod = DraftMethod::program;
  mlir::DenseIntElementsAttr draftTokens = {}; ///< of a reduced vocabulary, or null

  /// Attention whose partials take |row| bytes a row is split up to as many rows as take 64 MB, and 16 in any case. A
  /// GPU has blocks enough without.
  void boundSplit(int64_t row) {
    int64_t fit = gpu ? 16 : std::max<int64_t>((int64_t(64) << 20) / std::max<int64_t>(row, 1) / 16 * 16, 16);
    splitRows = std::min(splitRows, fit);
  }
};

} // namespace lathe
