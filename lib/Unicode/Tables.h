//===- Tables.h - the generated Unicode data ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <span>

namespace lathe::unicode::tables {

struct ScriptRange {
  uint32_t first, last, script;
};
struct CodePair {
  uint32_t from, to;
};
/// Lower case of more than one code point; zeros fill up.
struct LowerLong {
  uint32_t from, to[3];
};
struct Composition {
  uint32_t first, second, composed;
};

/// first << 8 | value, up to the next entry.
extern const std::span<const uint32_t> categories, combining;
/// code point << 1 | compatibility, count, code points...; sorted.
extern const std::span<const uint32_t> decomposed;
extern const std::span<const Composition> composed; ///< sorted by (first, second)

} // namespace lathe::unicode::tables
