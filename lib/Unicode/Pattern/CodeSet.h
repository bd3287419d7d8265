//===- CodeSet.h - sets of code points ----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Unicode.h"

namespace lathe::pattern {

/// Sorted, disjoint, non-adjacent ranges.
class CodeSet {
public:
  CodeSet() = default;
  explicit CodeSet(std::vector<unicode::Range> parts) : ranges(std::move(parts)) { normalize(); }
  static CodeSet of(uint32_t first, uint32_t last) { return CodeSet({{first, last}}); }
  static CodeSet all() { return of(0, unicode::limit - 1); }
  static CodeSet spaces();
  static CodeSet wordCharacters();

  void add(uint32_t first, uint32_t last) {
    ranges.push_back({first, last});
    dirty = true;
  }
  void add(const CodeSet &other) {
    ranges.insert(ranges.end(), other.parts().begin(), other.parts().end());
    dirty = true;
  }
  CodeSet complement() const;
  CodeSet intersect(const CodeSet &other) const;
  bool contains(uint32_t cp) const;
  const std::vector<unicode::Range> &parts() const {
    if (dirty) const_cast<CodeSet *>(this)->normalize();
    return ranges;
  }

private:
  void normalize();
  std::vector<unicode::Range> ranges;
  bool dirty = false;
};

} // namespace lathe::pattern
