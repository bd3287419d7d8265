//===- Layout.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Layout.h"

using namespace mlir;

namespace lathe::raise {

int64_t sizeOf(const Axis &axis) {
  int64_t n = 1;
  for (const Atom &atom : axis)
    n *= atom.size;
  return n;
}

Shape shapeOf(const Layout &layout) {
  Shape shape;
  for (const Axis &axis : layout)
    shape.push_back(sizeOf(axis));
  return shape;
}

void normalize(Layout &layout) {
  for (Axis &axis : layout) {
    Axis out;
    for (const Atom &atom : axis) {
      if (atom.size == 1) continue;
      if (!out.empty() && out.back().dim == atom.dim && atom.dim == Dim::feature && out.back().stride == atom.size * atom.stride) {
        out.back().size *= atom.size;
        out.back().stride = atom.stride;
      } else if (!out.empty() && out.back().dim == Dim::copies && atom.dim == Dim::copies) {
        out.back().size *= atom.size;
      } else {
        out.push_back(atom);
      }
    }
    axis = std::move(out);
  }
}

FailureOr<Layout> reshaped(const Layout &layout, ArrayRef<int64_t> shape) {
  if (shapeOf(layout) == Shape(shape)) return layout;
  SmallVector<Atom> atoms;
  for (const Axis &axis : layout)
    for (const Atom &atom : axis) {
      if (atom.size == 0) return failure();
      if (atom.size != 1) atoms.push_back(atom);
    }
  Layout out;
  size_t next = 0;
  for (int64_t size : shape) {
    Axis axis;
    for (int64_t need = size; need != 1;) {
      if (need < 1 || next == atoms.size()) return failure();
      Atom &atom = atoms[next];
      if (need % atom.size == 0) {
        axis.push_back(atom);
        need /= atom.size;
        ++next;
        continue;
      }
      if (atom.size % need || (atom.dim != Dim::feature && atom.dim != Dim::copies)) return failure();
      int64_t rest = atom.size / need;
      axis.push_back({atom.dim, need, atom.stride * rest});
      atom.size = rest;
      need = 1;
    }
    out.push_back(std::move(axis));
  }
  if (next != atoms.size()) return failure();
  normalize(out);
  return out;
}

Layout padded(const Layout &layout, size_t rank) {
  Layout out(rank > layout.size() ? rank - layout.size() : 0);
  out.append(layout.begin(), layout.end());
  return out;
}

Layout rescaled(const Layout &layout, int64_t old, int64_t next) {
  Layout out = layout;
  for (Axis &axis : out)
    for (Atom &atom : axis)
      if (atom.dim == Dim::feature && atom.stride >= old) atom.stride = atom.stride / old * next;
  return out;
}

bool isInner(const Axis &axis, int64_t n) { return n == 1 ? axis.empty() : axis.size() == 1 && axis[0] == Atom{Dim::feature, n, 1}; }

std::string layoutText(const Layout &layout) {
  std::string out = "[";
  for (const Axis &axis : layout) {
    out += out.size() > 1 ? ", " : "";
    if (axis.empty()) out += "1";
    for (const Atom &atom : axis) {
      out += static_cast<char>(atom.dim) + std::to_string(atom.size);
      if (atom.dim == Dim::feature) out += "*" + std::to_string(atom.stride);
      out += &atom == &axis.back() ? "" : " ";
    }
  }
  return out + "]";
}

std::string shapeText(ArrayRef<int64_t> shape) {
  std::string out = "[";
  for (auto [k, size] : llvm::enumerate(shape.take_front(16)))
    out += (k ? ", " : "") + std::to_string(size);
  return out + (shape.size() > 16 ? ", ...]" : "]");
}

} // namespace lathe::raise
