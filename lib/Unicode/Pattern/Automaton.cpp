//===- Automaton.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Forward automaton: a state is the ordered list of instructions that threads of a backtracking
// matcher would stand at, best first. Conditions on the next character are decided when that
// character is read: the transition knows its class. A match cuts off all worse threads; the last
// match seen before the automaton dies is the one that backtracking finds first.
//===----------------------------------------------------------------------===//
#include "Automaton.h"
#include <algorithm>

namespace lathe::pattern {

Status Classes::build(const std::vector<CodeSet> &sets) {
  // Every border of a set starts a new interval; intervals inside the same sets share a class.
  std::vector<uint32_t> borders = {0, unicode::limit};
  for (const CodeSet &set : sets)
    for (const unicode::Range &range : set.parts()) {
      borders.push_back(range.first);
      borders.push_back(range.last + 1);
    }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  // Blocks of 256: most lie inside one interval, and equal blocks are stored once.
  std::map<std::vector<bool>, uint32_t> numbers;
  std::map<std::vector<uint8_t>, uint16_t> blocks;
  std::vector<int> uniform(256, -1); // by class: the block that is all of it
  std::vector<size_t> cursor(sets.size(), 0);
  std::vector<uint8_t> content(256);
  std::vector<bool> inside(sets.size());
  auto store = [&](const std::vector<uint8_t> &bytes) {
    auto [it, added] = blocks.emplace(bytes, static_cast<uint16_t>(blocks.size()));
    if (added) data.insert(data.end(), bytes.begin(), bytes.end());
    return it->second;
  };
  block.reserve(unicode::limit >> 8);
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    for (size_t s = 0; s < sets.size(); ++s) {
      const auto &parts = sets[s].parts();
      while (cursor[s] < parts.size() && parts[cursor[s]].last < borders[i])
        ++cursor[s];
      inside[s] = cursor[s] < parts.size() && parts[cursor[s]].first <= borders[i];
    }
    auto [it, added] = numbers.emplace(inside, static_cast<uint32_t>(members.size()));
    if (added) members.push_back(inside);
    if (members.size() > 250)
      return makeError(StatusCode::resourceExhausted, "pattern: more than 250 character classes");
    uint8_t number = static_cast<uint8_t>(it->second);
    for (uint32_t cp = borders[i]; cp < borders[i + 1];) {
      if ((cp & 0xff) == 0 && borders[i + 1] - cp >= 256) {
        if (uniform[number] < 0) uniform[number] = store(std::vector<uint8_t>(256, number));
        block.push_back(static_cast<uint16_t>(uniform[number]));
        cp += 256;
        continue;
      }
      uint32_t last = std::min(borders[i + 1], (cp | 0xff) + 1);
      std::fill(content.begin() + (cp & 0xff), content.begin() + (cp & 0xff) + (last - cp), number);
      cp = last;
      if ((cp & 0xff) == 0) block.push_back(store(content));
    }
  }
  members.emplace_back(sets.size()); // the end
  std::copy_n(data.begin() + (static_cast<size_t>(block[0]) << 8), 128, ascii);
  return Status();
}

Status Reverse::build(const Program &program, const Classes &classes, uint32_t entry,
                      const std::vector<Context> &contextAfter) {
  // One bit per instruction and context; contexts are told apart only where the program asks.
  size_t size = program.code.size();
  uint32_t kinds = program.needsPrevious ? contexts : 1;
  using Bits = std::vector<bool>;
  // Everything from which a match is reachable at a position followed by class |c|, where |after| has
  // the instructions alive right of that character. Backwards jumps of loops need a fixed point.
  auto alive = [&](const Bits &after, uint32_t c, Context context) {
    Bits bits(size);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = size; i-- > 0;) {
        if (bits[i]) continue;
        const Instruction &in = program.code[i];
        bool ok = false;
        bool edge = context == afterWord ? true : false;
        switch (in.op) {
        case Op::match:
          ok = true;
          break;
        case Op::consume:
          ok = classes.inSet(c, in.x) && after[i + 1];
          break;
        case Op::split:
          ok = bits[in.x] || bits[in.y];
          break;
        case Op::jump:
          ok = bits[in.x];
          break;
        case Op::nextIn:
          ok = classes.inSet(c, in.x) && bits[i + 1];
          break;
        case Op::nextNot:
          ok = !classes.inSet(c, in.x) && bits[i + 1];
          break;
        case Op::ahead:
        case Op::notAhead:
          ok = bits[i + 1];
          break; // an upper bound is enough here
        case Op::lineStart:
          ok = (context == textBegin || context == afterLine) && bits[i + 1];
          break;
        case Op::textStart:
          ok = context == textBegin && bits[i + 1];
          break;
        case Op::wordEdge:
          ok = edge != (contextAfter[c] == afterWord) && bits[i + 1];
          break;
        case Op::notWordEdge:
          ok = edge == (contextAfter[c] == afterWord) && bits[i + 1];
          break;
        }
        if (ok) bits[i] = changed = true;
      }
    }
    return bits;
  };

  stride = classes.count();
  std::map<std::vector<Bits>, uint32_t> index;
  std::vector<std::vector<Bits>> states;
  auto add = [&](std::vector<Bits> state) {
    auto [it, added] = index.emplace(state, static_cast<uint32_t>(states.size()));
    if (added) {
      uint8_t bits = 0;
      for (uint32_t k = 0; k < contexts; ++k)
        if (state[kinds == 1 ? 0 : k][entry]) bits |= 1u << k;
      verdict.push_back(bits);
      states.push_back(std::move(state));
    }
    return it->second;
  };
  std::vector<Bits> first;
  for (uint32_t k = 0; k < kinds; ++k)
    first.push_back(alive(Bits(size + 1), classes.end(), static_cast<Context>(k)));
  add(std::move(first));
  for (size_t s = 0; s < states.size(); ++s) {
    if (states.size() > maxStates || states.size() * stride > maxTable)
      return makeError(StatusCode::resourceExhausted, "pattern: its automaton has more than %zu states", maxStates);
    table.resize((s + 1) * stride);
    for (uint32_t c = 0; c + 1 < stride; ++c) {
      // The instructions alive right of c saw c as what precedes them.
      Bits after = states[s][kinds == 1 ? 0 : contextAfter[c]];
      after.push_back(false);
      std::vector<Bits> left;
      for (uint32_t k = 0; k < kinds; ++k)
        left.push_back(alive(after, c, static_cast<Context>(k)));
      uint32_t target = add(std::move(left));
      table[s * stride + c] = target;
    }
  }
  return Status();
}

Result<std::unique_ptr<Automaton>> Automaton::build(Program program) {
  auto out = std::make_unique<Automaton>();
  if (program.needsPrevious) { // so that a class lies wholly inside or outside of what contexts ask for
    program.sets.push_back(CodeSet::wordCharacters());
    program.sets.push_back(CodeSet::of('\n', '\n'));
  }
  LATHE_RETURN_IF_ERROR(out->classes.build(program.sets));
  for (uint32_t c = 0; c < out->classes.count(); ++c) {
    Context context = afterOther;
    if (program.needsPrevious) {
      uint32_t sets = static_cast<uint32_t>(program.sets.size());
      if (out->classes.inSet(c, sets - 2)) context = afterWord;
      if (out->classes.inSet(c, sets - 1)) context = afterLine;
    }
    out->contextAfter.push_back(context);
  }
  out->program = std::move(program);
  for (uint32_t entry : out->program.lookaheads) {
    out->lookaheads.emplace_back();
    LATHE_RETURN_IF_ERROR(out->lookaheads.back().build(out->program, out->classes, entry, out->contextAfter));
  }
  LATHE_RETURN_IF_ERROR(out->buildForward());
  return out;
}

uint32_t Automaton::stateOf(std::vector<uint32_t> threads, Context context) {
  if (threads.empty()) return dead;
  if (!program.needsPrevious) context = afterOther;
  auto [it, added] = index.emplace(std::pair(std::move(threads), context), static_cast<uint32_t>(stateCount));
  if (added) {
    ++stateCount;
    pending.push_back(&*it);
  }
  return it->second;
}

bool Automaton::holds(const Instruction &in, Context context, uint32_t c, uint32_t ahead) const {
  bool word = context == afterWord, nextWord = contextAfter[c] == afterWord;
  switch (in.op) {
  case Op::nextIn:
    return classes.inSet(c, in.x);
  case Op::nextNot:
    return !classes.inSet(c, in.x);
  case Op::ahead:
    return ahead >> in.x & 1;
  case Op::notAhead:
    return !(ahead >> in.x & 1);
  case Op::lineStart:
    return context == textBegin || context == afterLine;
  case Op::textStart:
    return context == textBegin;
  case Op::wordEdge:
    return word != nextWord;
  case Op::notWordEdge:
    return word == nextWord;
  default:
    return false;
  }
}

/// Walks from |threads| over everything that reads no character, given the class |c| of the next
/// one, to the instructions that read it, best first.
void Automaton::follow(const std::vector<uint32_t> &threads, Context context, uint32_t c, uint32_t ahead,
                       std::vector<uint32_t> &consuming, bool &matched) {
  ++visit;
  consuming.clear();
  matched = false;
  std::vector<uint32_t> stack;
  for (uint32_t thread : threads) {
    stack.push_back(thread);
    while (!stack.empty()) {
      uint32_t pc = stack.back();
      stack.pop_back();
      if (visited[pc] == visit) continue;
      visited[pc] = visit;
      const Instruction &in = program.code[pc];
      switch (in.op) {
      case Op::consume:
        consuming.push_back(pc);
        break;
      case Op::match:
        matched = true;
        return; // whatever comes later is worse
      case Op::split:
        stack.push_back(in.y);
        stack.push_back(in.x);
        break;
      case Op::jump:
        stack.push_back(in.x);
        break;
      default:
        if (holds(in, context, c, ahead)) stack.push_back(pc + 1);
      }
    }
  }
}

Status Automaton::buildForward() {
  visited.assign(program.code.size(), 0);
  uint32_t variants = 1u << lookaheads.size();
  stride = classes.count() * variants;
  stateCount = 1; // dead
  for (uint32_t k = 0; k < contexts; ++k)
    starts[k] = stateOf({0}, static_cast<Context>(k));
  table.assign(stride, dead);
  std::vector<uint32_t> consuming, next;
  std::vector<bool> present(program.code.size());
  for (size_t p = 0; p < pending.size(); ++p) {
    if (stateCount > maxStates || stateCount * stride > maxTable)
      return makeError(StatusCode::resourceExhausted, "pattern: its automaton has more than %zu states", maxStates);
    const auto &[threads, context] = pending[p]->first;
    size_t row = table.size();
    table.resize(row + stride);
    for (uint32_t ahead = 0; ahead < variants; ++ahead)
      for (uint32_t c = 0; c < classes.count(); ++c) {
        bool matched;
        follow(threads, context, c, ahead, consuming, matched);
        next.clear();
        for (uint32_t pc : consuming)
          if (classes.inSet(c, program.code[pc].x) && !present[pc + 1]) {
            present[pc + 1] = true;
            next.push_back(pc + 1);
          }
        for (uint32_t pc : next)
          present[pc] = false;
        uint32_t target = c == classes.end() ? dead : stateOf(next, contextAfter[c]);
        table[row + ahead * classes.count() + c] = target | (matched ? matchBit : 0);
      }
  }
  index.clear();
  pending.clear();
  visited.clear();
  return Status();
}

Context Automaton::contextAt(std::string_view text, size_t at) const {
  if (!program.needsPrevious) return afterOther;
  if (at == 0) return textBegin;
  // Back to the start of the character; a stray continuation byte counts as U+FFFD.
  for (size_t back = 1; back <= 4 && back <= at; ++back) {
    unsigned length;
    uint32_t cp = unicode::decode(text, at - back, length);
    if (cp != unicode::invalid && length == back) return contextAfter[classes.of(cp)];
  }
  return contextAfter[classes.of(unicode::invalid)];
}

/// Sets |bit| in out[p] for every position p of |text| where |reverse| matches.
void Automaton::lookahead(const Reverse &reverse, std::string_view text, std::vector<uint8_t> &out,
                          uint32_t bit) const {
  out.resize(text.size() + 1);
  uint32_t state = reverse.start();
  size_t at = text.size();
  for (;;) {
    if (reverse.matches(state, contextAt(text, at))) out[at] |= 1u << bit;
    if (at == 0) return;
    size_t start = at - 1;
    unsigned length;
    uint32_t cp = unicode::decode(text, start, length);
    for (size_t back = 2; cp == unicode::invalid && back <= 4 && back <= at; ++back) {
      cp = unicode::decode(text, at - back, length);
      if (cp != unicode::invalid && length == back)
        start = at - back;
      else
        cp = unicode::invalid;
    }
    state = reverse.next(state, classes.of(cp));
    at = start;
  }
}

void Automaton::findAll(std::string_view text, std::vector<Pattern::Match> &out) const {
  std::vector<uint8_t> aheadBits, possible;
  for (uint32_t i = 0; i < lookaheads.size(); ++i)
    lookahead(lookaheads[i], text, aheadBits, i);
  bool anyAhead = !lookaheads.empty();
  const uint32_t classCount = classes.count();
  // Attempts that read far and match nothing would make the whole quadratic (\s+$ in a long run of
  // spaces). Once they have cost more than the text is long, find out where a match exists at all.
  size_t wasted = 0;
  for (size_t at = 0; at <= text.size();) {
    unsigned length = 1;
    size_t last = std::string_view::npos;
    if (possible.empty() || possible[at]) {
      uint32_t state = starts[contextAt(text, at)];
      size_t i = at;
      for (;;) {
        uint32_t c = classes.end();
        length = 1;
        if (i < text.size()) {
          uint8_t byte = static_cast<uint8_t>(text[i]);
          c = classes.of(byte < 0x80 ? byte : unicode::decode(text, i, length));
        }
        uint32_t next = table[static_cast<size_t>(state) * stride + (anyAhead ? aheadBits[i] * classCount : 0) + c];
        if (next & matchBit) last = i;
        state = next & ~matchBit;
        if (state == dead) break;
        i += length;
      }
      if (last == std::string_view::npos && possible.empty() && (wasted += i - at) > text.size() + 64) {
        std::call_once(wholeOnce, [this] {
          auto reverse = std::make_unique<Reverse>();
          if (reverse->build(program, classes, 0, contextAfter).ok()) whole = std::move(reverse);
        });
        if (whole)
          lookahead(*whole, text, possible, 0);
        else
          possible.assign(text.size() + 1, 1);
      }
    }
    if (last != std::string_view::npos) {
      out.push_back({at, last});
      if (last > at) {
        at = last;
        continue;
      }
    }
    if (at < text.size()) unicode::decode(text, at, length);
    at += at < text.size() ? length : 1;
  }
}

} // namespace lathe::pattern

namespace lathe {

Pattern::Pattern() = default;
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern &&) noexcept = default;
Pattern &Pattern::operator=(Pattern &&) noexcept = default;
Pattern::Pattern(std::unique_ptr<pattern::Automaton> a) : automaton(std::move(a)) {}

Result<Pattern> Pattern::compile(std::string_view source) {
  LATHE_ASSIGN_OR_RETURN(pattern::Program program, pattern::parse(source));
  LATHE_ASSIGN_OR_RETURN(auto automaton, pattern::Automaton::build(std::move(program)));
  return Pattern(std::move(automaton));
}

Result<Pattern> Pattern::literal(std::string_view text) {
  std::string source;
  for (char c : text) {
    if (static_cast<uint8_t>(c) < 0x80 && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z'))
      source += '\\';
    source += c;
  }
  return compile(source);
}

void Pattern::findAll(std::string_view text, std::vector<Match> &out) const {
  if (automaton) automaton->findAll(text, out);
}
size_t Pattern::states() const { return automaton ? automaton->states() : 0; }

} // namespace lathe
