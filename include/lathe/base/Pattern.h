//===- Pattern.h - regular expressions in linear time -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The patterns that tokenizers split text with, in Oniguruma's syntax: literals, classes with
// ranges, nesting and &&, \p{..} categories and scripts, \s \d \w, groups, (?i:..), alternation,
// greedy, lazy and possessive repeats, (?=..) (?!..), \b, ^ and $ (at lines), \A and \z.
//
// A pattern becomes a deterministic automaton over classes of code points; the order of its threads
// gives what a backtracking matcher would find first. So there is no text that makes it slow, and
// no limit that a text could exceed. Back references, lookbehind and atomic groups are refused.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace lathe {

namespace pattern {
class Automaton;
}

/// A compiled pattern. Immutable; const members are safe to call from several threads.
class Pattern {
public:
  struct Match {
    size_t first, last; ///< byte offsets, last is one past the end
  };

  Pattern();
  ~Pattern();
  Pattern(Pattern &&) noexcept;
  Pattern &operator=(Pattern &&) noexcept;

  /// Errors: invalidArgument (says what is wrong at which offset), unsupported (names the
  /// construct), resourceExhausted (the automaton would have too many states).
  static Result<Pattern> compile(std::string_view source);
  /// A pattern that matches exactly |text|.
  static Result<Pattern> literal(std::string_view text);

  /// Appends all matches in |text| from left to right, as an iterator over non-overlapping matches
  /// gives them: after an empty match the search goes on one character further. A byte that is no
  /// part of a valid character counts as U+FFFD.
  void findAll(std::string_view text, std::vector<Match> &out) const;

  /// States of the forward automaton, for tests.
  size_t states() const;

private:
  explicit Pattern(std::unique_ptr<pattern::Automaton> automaton);
  std::unique_ptr<pattern::Automaton> automaton;
};

} // namespace lathe
