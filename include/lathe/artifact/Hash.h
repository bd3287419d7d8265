//===- Hash.h - the content hash of artifact sections -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lathe::artifact {

/// XXH3-128 (seed 0) of |bytes|.
Hash128 hashBytes(std::span<const uint8_t> bytes);

inline bool operator==(const Hash128 &a, const Hash128 &b) { return a.low == b.low && a.high == b.high; }

/// 32 lower-case hexadecimal digits, high half first.
std::string toHex(const Hash128 &hash);

/// The same hash of bytes that come in pieces. Move-only.
class Hasher {
public:
  Hasher();
  ~Hasher();
  Hasher(Hasher &&) noexcept;
  Hasher &operator=(Hasher &&) noexcept;
  void update(std::span<const uint8_t> bytes);
  Hash128 digest() const;

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lathe::artifact
