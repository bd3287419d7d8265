//===- Layout.h - how a tensor of the graph holds a term ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every axis of a tensor is a product of atoms, outermost first: batch, step (the tokens of this call), past, total (past and step), copies of the same, and parts of
// the term's features. Reshape, Transpose, Expand and their kin only rearrange atoms. Atoms of size one are left out.
//===----------------------------------------------------------------------===//
#pragma once
#include "Known.h"

namespace lathe::raise {

enum class Dim : char { batch = 'B', step = 'S', past = 'P', total = 'T', copies = 'R', feature = 'F' };
struct Atom {
  Dim dim;
  int64_t size;
  int64_t stride = 0; ///< of a feature atom: features from one to the next
  bool operator==(const Atom &) const = default;
};
using Axis = llvm::SmallVector<Atom, 2>;
using Layout = llvm::SmallVector<Axis, 4>;

int64_t sizeOf(const Axis &axis);
Shape shapeOf(const Layout &layout);
/// Drops atoms of one element and joins feature atoms that lie together.
void normalize(Layout &layout);
mlir::FailureOr<Layout> reshaped(const Layout &layout, llvm::ArrayRef<int64_t> shape);
/// Pads on the left with axes of one element.
Layout padded(const Layout &layout, size_t rank);
/// The layout after groups of |old| features became groups of |next| by a change within them: strides above the group are scaled.
Layout rescaled(const Layout &layout, int64_t old, int64_t next);
/// True when |axis| is features 0 .. n - 1 in order.
bool isInner(const Axis &axis, int64_t n);
std::string layoutText(const Layout &layout);
/// Numbers in brackets, the first sixteen of them.
std::string shapeText(llvm::ArrayRef<int64_t> shape);

} // namespace lathe::raise
