//===- NgramIndex.h - prompt lookup -------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Prompt lookup decoding (Saxena, 2023): when the last n tokens have occurred before, what followed them then is the
// draft. Longest n first, 5 down to 2; of several occurrences the latest.
//===----------------------------------------------------------------------===//
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lathe::runtime {

/// Remembers where each n-gram of a growing text ended last. The text is the caller's. A table entry may be overwritten
/// by another n-gram of the same hash: the older one is forgotten, never mistaken (tokens are compared).
/// All memory is allocated at construction.
class NgramIndex {
public:
  static constexpr uint32_t shortest = 2, longest = 5;
  /// |tokens|: how long the text will be at most.
  explicit NgramIndex(uint32_t tokens);
  /// Bytes that one for |tokens| tokens takes.
  static uint64_t bytesFor(uint32_t tokens);

  /// Takes token |end| - 1 of |text| in; tokens are taken in order, each once.
  void append(std::span<const int32_t> text, uint32_t end);

  struct Match {
    uint32_t position = 0; ///< of the token that followed the earlier occurrence; below the text's length
    uint32_t length = 0;   ///< tokens that agree, at most 32; 0: no match
  };
  /// The match at the end of what was taken in.
  Match match(std::span<const int32_t> text) const;

private:
  std::array<std::vector<uint32_t>, longest + 1> tables; ///< [n]: end of the last occurrence, 0: none
  std::array<uint32_t, longest + 1> earlier{};           ///< [n]: the occurrence before the text's end
  uint32_t mask = 0, taken = 0;
};

} // namespace lathe::runtime
