//===- RowTools.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "RowTools.h"

namespace lathe::codegen {

SmallVector<Piece> pieces(int64_t n) {
  SmallVector<Piece> r;
  if (n >= 16) {
    for (int64_t at = 0; at + 16 <= n; at += 16)
      r.push_back({at, 16});
    if (n % 16) r.push_back({n - 16, 16});
    return r;
  }
  for (int64_t at = 0, width = 8; width; width /= 2)
    if (n & width) {
      r.push_back({at, width});
      at += width;
    }
  return r;
}

Value laneMask(Emitter &e, int64_t n) {
  SmallVector<bool> bits(16);
  for (int64_t i = 0; i < 16; ++i)
    bits[i] = i < n;
  return arith::ConstantOp::create(e.b, e.loc, DenseElementsAttr::get(e.vec(16, e.i1), ArrayRef<bool>(bits)));
}

Value loadLanes(Emitter &e, Value p, int64_t offset, int64_t n) {
  if (n == 16) return e.ld(e.vf, p, offset, 4);
  return LLVM::MaskedLoadOp::create(e.b, e.loc, e.vf, e.gepc(p, offset), laneMask(e, n), e.splatF(e.vf, 0), 4);
}

void storeLanes(Emitter &e, Value v, Value p, int64_t offset, int64_t n) {
  if (n == 16) return e.st(v, p, offset, 4);
  LLVM::MaskedStoreOp::create(e.b, e.loc, v, e.gepc(p, offset), laneMask(e, n), 4);
}

} // namespace lathe::codegen
