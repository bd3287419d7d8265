//===- CopyCursor.h - a copy that goes on behind its changes ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A text that copies another with changes mostly goes on, behind a word that it replaced, added or left out, with what stands behind that
// word in the other. Whoever looks the last tokens up finds the place again some tokens later; the cursor knows it before.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <span>

namespace lathe::runtime {

/// Where in a growing text stands what its next token is probably copied from. No heap memory. One thread at a time.
class CopyCursor {
public:
  static constexpr uint32_t leastCopy = 4; ///< tokens that must agree to begin, and to end a change
  static constexpr uint32_t window = 12;   ///< tokens of the source, from the change on, where the copy may go on
  static constexpr uint32_t patience = 12; ///< tokens that may differ before the change ends; then it is a copy no more

  /// |text| has one token more, its last. |found|: the token that followed an earlier occurrence of the text's end, in which |agreeing|
  /// tokens agree (0: there is none).
  void push(std::span<const int32_t> text, uint32_t found, uint32_t agreeing);

  bool active() const { return copied > 0; }
  /// Of the token that is expected next; below the text's length. Directly behind a change: as if one word took the place of one.
  uint32_t position() const { return at; }
  uint32_t run() const { return agreed; }    ///< tokens copied since the last change; 0: the last one differs
  uint32_t length() const { return copied; } ///< tokens copied, what was changed apart

private:
  uint32_t at = 0, agreed = 0, copied = 0;
  uint32_t changed = 0, since = 0; ///< where the first token of the source that was changed stands; tokens that differed since, 0: no change
};

} // namespace lathe::runtime
