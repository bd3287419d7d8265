//===- StopMatcher.h - stop strings in streamed text --------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

/// Finds the first stop string in text that arrives in pieces. Holds back only what could still
/// become a stop string: the longest suffix that is a proper prefix of one. Works on bytes;
/// text cut into whole characters comes out in whole characters. Time: bytes times stop strings.
class StopMatcher {
public:
  /// Empty strings among |stops| are ignored. With |includeStop| the found string is part of the text.
  explicit StopMatcher(std::vector<std::string> stops, bool includeStop = false);

  /// Takes the next |piece|; returns the text that may be shown now. After stopped() it returns nothing.
  std::string push(std::string_view piece);
  /// The end of the text: returns what was held back.
  std::string finish();
  /// The same, behind what |out| holds.
  void push(std::string_view piece, std::string &out);
  void finish(std::string &out);

  bool stopped() const { return found >= 0; }
  /// Index of the stop string found (as given to the constructor), or -1. Of several that end at the
  /// same byte, the longest; of equals the first.
  int32_t stopIndex() const { return found; }
  /// The stop string found, or empty.
  std::string_view stopText() const;

private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> fail; ///< Knuth-Morris-Pratt: longest border of each prefix
    uint32_t matched = 0;       ///< bytes of text that end the stream so far
    int32_t index = 0;
  };
  std::vector<Stop> stops;
  std::string held;
  int32_t found = -1;
  bool include = false;
};

} // namespace lathe
