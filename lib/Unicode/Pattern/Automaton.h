//===- Automaton.h - deterministic automata of a pattern ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Program.h"
#include "lathe/base/Pattern.h"
#include <map>
#include <mutex>

namespace lathe::pattern {

inline constexpr size_t maxStates = 20000, maxTable = 4 << 20; ///< states and transitions of one automaton

/// Numbers the code points by the sets that hold them: points of one class are interchangeable.
class Classes {
public:
  Classes() = default;
  Status build(const std::vector<CodeSet> &sets);
  /// Classes; the class `count() - 1` is the end of the text.
  uint32_t count() const { return static_cast<uint32_t>(members.size()); }
  uint32_t end() const { return count() - 1; }
  /// Is class |c| inside set |set|? Never for the end.
  bool inSet(uint32_t c, uint32_t set) const { return members[c][set]; }
  uint8_t of(uint32_t cp) const {
    if (cp < 128) return ascii[cp];
    if (cp >= unicode::limit) cp = 0xfffd;
    return data[static_cast<size_t>(block[cp >> 8]) << 8 | (cp & 0xff)];
  }

private:
  uint8_t ascii[128] = {};
  std::vector<uint16_t> block;
  std::vector<uint8_t> data;
  std::vector<std::vector<bool>> members; ///< [class][set]
};

/// What precedes a position, as far as ^, \A, \b and \B ask.
enum Context : uint8_t { textBegin, afterLine, afterWord, afterOther, contexts };

/// Set of instructions from which a match is still possible, per context of what precedes; read from
/// the end of the text to its start. Tells at once at which positions a match exists.
class Reverse {
public:
  Status build(const Program &program, const Classes &classes, uint32_t entry,
               const std::vector<Context> &contextAfter);
  uint32_t start() const { return 0; }
  /// From the state right of a character of class |c| to the state left of it; class end() starts.
  uint32_t next(uint32_t state, uint32_t c) const { return table[state * stride + c]; }
  bool matches(uint32_t state, Context previous) const { return verdict[state] >> previous & 1; }

private:
  uint32_t stride = 0;
  std::vector<uint32_t> table;
  std::vector<uint8_t> verdict; ///< one bit per context
};

class Automaton {
public:
  static Result<std::unique_ptr<Automaton>> build(Program program);
  void findAll(std::string_view text, std::vector<Pattern::Match> &out) const;
  size_t states() const { return stateCount; }

private:
  Status buildForward();
  uint32_t stateOf(std::vector<uint32_t> threads, Context context);
  void follow(const std::vector<uint32_t> &threads, Context context, uint32_t c, uint32_t ahead,
              std::vector<uint32_t> &consuming, bool &matched);
  bool holds(const Instruction &instruction, Context context, uint32_t c, uint32_t ahead) const;
  Context contextAt(std::string_view text, size_t at) const;
  void lookahead(const Reverse &reverse, std::string_view text, std::vector<uint8_t> &out, uint32_t bit) const;

  static constexpr uint32_t dead = 0, matchBit = 1u << 31;
  Program program;
  Classes classes;
  std::vector<Context> contextAfter; ///< [class]
  std::vector<Reverse> lookaheads;
  /// Of the pattern itself: where it can match at all. Few texts need it, so the first that does builds it.
  mutable std::once_flag wholeOnce;
  mutable std::unique_ptr<Reverse> whole;
  uint32_t stride = 0;
  size_t stateCount = 0;
  uint32_t starts[contexts] = {};
  std::vector<uint32_t> table; ///< [state][ahead bits][class]: next state, with matchBit: a match ends here

  // only while building
  std::map<std::pair<std::vector<uint32_t>, Context>, uint32_t> index;
  std::vector<const std::pair<const std::pair<std::vector<uint32_t>, Context>, uint32_t> *> pending;
  std::vector<uint32_t> visited;
  uint32_t visit = 0;
};

} // namespace lathe::pattern
