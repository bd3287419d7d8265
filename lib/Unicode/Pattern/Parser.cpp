//===- Parser.cpp - pattern source to instructions ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Recursive descent over the source. A repeat needs its operand several times, so the source becomes
// a tree first; instructions come from a second walk.
//===----------------------------------------------------------------------===//
#include "Program.h"
#include <algorithm>
#include <optional>

namespace lathe::pattern {
namespace {

constexpr uint32_t unbounded = 0xffffffffu;

struct Node {
  enum Kind { empty, set, sequence, choice, repeat, assertion, ahead } kind = empty;
  Op op = Op::match;            ///< of an assertion
  uint32_t setIndex = 0;        ///< of a set, or of an assertion on one
  uint32_t least = 0, most = 0; ///< of a repeat
  enum { greedy, lazy, possessive } mode = greedy;
  bool negative = false; ///< of a lookahead
  std::vector<uint32_t> children;
};

class Parser {
public:
  explicit Parser(std::string_view source) : source(source) {}

  Result<Program> run() {
    if (source.size() > maxSource)
      return makeError(StatusCode::resourceExhausted, "expected a pattern of at most %zu bytes, found %zu", maxSource,
                       source.size());
    if (!unicode::isValid(source)) return makeError(StatusCode::invalidArgument, "expected a pattern in UTF-8");
    LATHE_ASSIGN_OR_RETURN(uint32_t root, alternatives(0));
    if (at < source.size()) return fail("unmatched ')'");
    LATHE_RETURN_IF_ERROR(emit(root));
    LATHE_RETURN_IF_ERROR(put({Op::match}));
    for (size_t i = 0; i < pendingAhead.size(); ++i) { // emit() may not add more
      program.lookaheads.push_back(static_cast<uint32_t>(program.code.size()));
      inLookahead = true;
      LATHE_RETURN_IF_ERROR(emit(pendingAhead[i]));
      LATHE_RETURN_IF_ERROR(put({Op::match}));
    }
    return std::move(program);
  }

private:
  Status fail(const char *what) const {
    return makeError(StatusCode::invalidArgument, "pattern: %s at offset %zu", what, at);
  }
  Status refuse(const char *what) const {
    return makeError(StatusCode::unsupported, "pattern: %s at offset %zu is not supported", what, at);
  }
  bool end() const { return at >= source.size(); }
  char peek() const { return end() ? '\0' : source[at]; }
  bool eat(std::string_view text) {
    if (source.substr(at, text.size()) != text) return false;
    at += text.size();
    return true;
  }
  uint32_t take() {
    unsigned length;
    uint32_t cp = unicode::decode(source, at, length);
    at += length;
    return cp;
  }
  uint32_t add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<uint32_t>(nodes.size() - 1);
  }
  uint32_t addSet(CodeSet set) {
    program.sets.push_back(std::move(set));
    Node node;
    node.kind = Node::set;
    node.setIndex = static_cast<uint32_t>(program.sets.size() - 1);
    return add(std::move(node));
  }
  uint32_t addAssertion(Op op, std::optional<CodeSet> set = {}) {
    Node node;
    node.kind = Node::assertion;
    node.op = op;
    if (set) {
      program.sets.push_back(std::move(*set));
      node.setIndex = static_cast<uint32_t>(program.sets.size() - 1);
    }
    return add(std::move(node));
  }

  // --- syntax ---

  Result<uint32_t> alternatives(unsigned depth) {
    if (depth > maxDepth) return fail("groups nest too deeply");
    Node choice;
    choice.kind = Node::choice;
    bool outerCase = ignoreCase;
    do {
      LATHE_ASSIGN_OR_RETURN(uint32_t branch, sequence(depth));
      choice.children.push_back(branch);
    } while (eat("|"));
    ignoreCase = outerCase; // (?i) holds to the end of its group
    return choice.children.size() == 1 ? choice.children[0] : add(std::move(choice));
  }

  Result<uint32_t> sequence(unsigned depth) {
    Node seq;
    seq.kind = Node::sequence;
    while (!end() && peek() != '|' && peek() != ')') {
      LATHE_ASSIGN_OR_RETURN(uint32_t piece, atom(depth));
      LATHE_ASSIGN_OR_RETURN(piece, quantified(piece));
      seq.children.push_back(piece);
    }
    return seq.children.size() == 1 ? seq.children[0] : add(std::move(seq));
  }

  Result<uint32_t> quantified(uint32_t piece) {
    for (int stacked = 0; !end(); ++stacked) {
      Node node;
      node.kind = Node::repeat;
      bool braces = false;
      if (eat("*")) {
        node.least = 0, node.most = unbounded;
      } else if (eat("+")) {
        node.least = 1, node.most = unbounded;
      } else if (eat("?")) {
        node.least = 0, node.most = 1;
      } else if (peek() == '{') {
        size_t start = at;
        if (!counts(node.least, node.most)) { // a literal brace
          at = start;
          return piece;
        }
        if (node.least > node.most) return fail("repeat counts are reversed");
        if (node.least > 1000 || (node.most != unbounded && node.most > 1000)) return fail("repeat count is over 1000");
        braces = true;
      } else {
        return piece;
      }
      if (stacked == 4) return refuse("a repeat of a repeat of a repeat");
      // After braces, Oniguruma's '+' repeats once more, and so does '?' when the count is exact.
      if (!(braces && node.least == node.most) && eat("?"))
        node.mode = Node::lazy;
      else if (!braces && eat("+"))
        node.mode = Node::possessive;
      if (node.mode == Node::possessive && nodes[piece].kind != Node::set)
        return refuse("a possessive repeat of more than one character");
      node.children.push_back(piece);
      piece = add(std::move(node));
    }
    return piece;
  }

  bool counts(uint32_t &least, uint32_t &most) {
    ++at; // {
    auto number = [&](uint32_t &value) {
      size_t start = at;
      value = 0;
      while (!end() && peek() >= '0' && peek() <= '9' && at - start < 6)
        value = value * 10 + (source[at++] - '0');
      return at > start;
    };
    bool low = number(least);
    if (eat(",")) {
      bool high = number(most);
      if (!low && !high) return false;
      if (!high) most = unbounded;
    } else {
      if (!low) return false;
      most = least;
    }
    return eat("}");
  }

  Result<uint32_t> atom(unsigned depth) {
    if (eat("(")) return group(depth);
    if (peek() == '[') {
      LATHE_ASSIGN_OR_RETURN(CodeSet set, bracket(0));
      return addSet(std::move(set));
    }
    if (eat(".")) return addSet(CodeSet::of('\n', '\n').complement());
    if (eat("^")) return addAssertion(Op::lineStart);
    if (eat("$")) return addAssertion(Op::nextNot, CodeSet::of('\n', '\n').complement());
    if (peek() == '*' || peek() == '+' || peek() == '?') return fail("nothing to repeat");
    if (peek() == '\\') return escape();
    return addSet(one(take()));
  }

  CodeSet one(uint32_t cp) const {
    CodeSet set = CodeSet::of(cp, cp);
    if (ignoreCase)
      for (uint32_t variant : unicode::caseVariants(cp))
        set.add(variant, variant);
    return set;
  }

  Result<uint32_t> group(unsigned depth) {
    bool outerCase = ignoreCase;
    std::optional<bool> ahead; // negative?
    if (eat("?")) {
      if (eat("=")) {
        ahead = false;
      } else if (eat("!")) {
        ahead = true;
      } else if (peek() == '<' && (source.substr(at, 2) == "<=" || source.substr(at, 2) == "<!")) {
        return refuse("lookbehind");
      } else if (peek() == '>') {
        return refuse("an atomic group");
      } else if (peek() == '<' || peek() == 'P') {
        return refuse("a named group");
      } else if (peek() == '#') {
        return refuse("a comment");
      } else {
        bool on = true;
        while (!end() && peek() != ':' && peek() != ')') {
          if (eat("-"))
            on = false;
          else if (eat("i"))
            ignoreCase = on;
          else
            return refuse("this group option");
        }
        if (eat(")")) { // to the end of the enclosing group
          Node nothing;
          return add(std::move(nothing));
        }
        if (!eat(":")) return fail("expected ':' after group options");
      }
    }
    LATHE_ASSIGN_OR_RETURN(uint32_t inner, alternatives(depth + 1));
    ignoreCase = outerCase;
    if (!eat(")")) return fail("expected ')'");
    if (!ahead) return inner;
    if (std::optional<CodeSet> set = singleCharacter(inner))
      return addAssertion(*ahead ? Op::nextNot : Op::nextIn, std::move(set));
    Node node;
    node.kind = Node::ahead;
    node.negative = *ahead;
    node.children.push_back(inner);
    return add(std::move(node));
  }

  /// The set when |node| is one character of a set.
  std::optional<CodeSet> singleCharacter(uint32_t node) const {
    const Node &n = nodes[node];
    if (n.kind == Node::set) return program.sets[n.setIndex];
    if (n.kind != Node::choice) return {};
    CodeSet all;
    for (uint32_t child : n.children) {
      if (nodes[child].kind != Node::set) return {};
      all.add(program.sets[nodes[child].setIndex]);
    }
    return all;
  }

  Result<uint32_t> escape() {
    if (at + 1 >= source.size()) return fail("'\\' ends the pattern");
    char c = source[at + 1];
    auto assertion = [&](Op op, std::optional<CodeSet> set = {}) {
      at += 2;
      return addAssertion(op, std::move(set));
    };
    switch (c) {
    case 'b':
      return assertion(Op::wordEdge);
    case 'B':
      return assertion(Op::notWordEdge);
    case 'A':
      return assertion(Op::textStart);
    case 'z':
      return assertion(Op::nextNot, CodeSet::all());
    case 'Z':
    case 'G':
    case 'K':
    case 'R':
    case 'X':
    case 'k':
    case 'g':
      return refuse("this escape");
    default:
      break;
    }
    if (c >= '1' && c <= '9') return refuse("a back reference");
    bool single = false;
    LATHE_ASSIGN_OR_RETURN(CodeSet set, escapedSet(single));
    if (single && ignoreCase) set = one(set.parts()[0].first);
    return addSet(std::move(set));
  }

  /// An escape that stands for characters; at the backslash. |single|: it stands for one.
  Result<CodeSet> escapedSet(bool &single) {
    size_t start = at;
    ++at;
    if (end()) return fail("'\\' ends the pattern");
    uint32_t c = take();
    single = false;
    switch (c) {
    case 's':
      return CodeSet::spaces();
    case 'S':
      return CodeSet::spaces().complement();
    case 'd':
      return CodeSet(unicode::rangesOf(unicode::categoryBit(unicode::Category::Nd)));
    case 'D':
      return CodeSet(unicode::rangesOf(~unicode::categoryBit(unicode::Category::Nd)));
    case 'w':
      return CodeSet::wordCharacters();
    case 'W':
      return CodeSet::wordCharacters().complement();
    case 'p':
    case 'P':
      return property(c == 'P');
    default:
      break;
    }
    single = true;
    uint32_t cp = c;
    switch (c) {
    case 'n':
      cp = '\n';
      break;
    case 'r':
      cp = '\r';
      break;
    case 't':
      cp = '\t';
      break;
    case 'f':
      cp = '\f';
      break;
    case 'v':
      cp = '\v';
      break;
    case 'a':
      cp = 7;
      break;
    case 'e':
      cp = 27;
      break;
    case 'x':
    case 'u': {
      bool braces = c == 'x' && eat("{");
      size_t digits = braces ? 6 : c == 'x' ? 2 : 4;
      cp = 0;
      size_t first = at;
      while (at - first < digits && !end() && hexValue(peek()) >= 0)
        cp = cp * 16 + static_cast<uint32_t>(hexValue(source[at++]));
      if (at == first || (braces && !eat("}")) || (c == 'u' && at - first != 4) || cp >= unicode::limit)
        return fail("bad hexadecimal escape");
      break;
    }
    default:
      if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
        at = start;
        return refuse("this escape");
      }
    }
    return CodeSet::of(cp, cp);
  }

  static int hexValue(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }

  /// After \p or \P.
  Result<CodeSet> property(bool negative) {
    std::string name;
    if (eat("{")) {
      if (eat("^")) negative = !negative;
      size_t close = source.find('}', at);
      if (close == std::string_view::npos) return fail("expected '}' after a property");
      name = source.substr(at, close - at);
      at = close + 1;
    } else if (!end()) {
      name = source[at++];
    }
    for (std::string_view prefix : {"Script=", "script=", "sc=", "Is", "General_Category=", "gc="})
      if (name.starts_with(prefix)) name = name.substr(prefix.size());
    CodeSet set;
    static constexpr std::pair<const char *, const char *> longNames[] = {
        {"Letter", "L"},    {"Mark", "M"},  {"Number", "N"}, {"Punctuation", "P"},       {"Symbol", "S"},
        {"Separator", "Z"}, {"Alpha", "L"}, {"Digit", "Nd"}, {"Uppercase_Letter", "Lu"}, {"Lowercase_Letter", "Ll"},
        {"Punct", "P"}};
    for (auto [from, to] : longNames)
      if (name == from) name = to;
    if (uint32_t categories = unicode::categoriesByName(name))
      set = CodeSet(unicode::rangesOf(categories));
    else if (name == "Space" || name == "White_Space")
      set = CodeSet::spaces();
    else if (name == "Any")
      set = CodeSet::all();
    else if (std::vector<unicode::Range> script = unicode::scriptByName(name); !script.empty())
      set = CodeSet(std::move(script));
    else
      return makeError(StatusCode::unsupported, "pattern: property '%.40s' at offset %zu is not supported",
                       name.c_str(), at);
    return negative ? set.complement() : set;
  }

  /// At '['.
  Result<CodeSet> bracket(unsigned depth) {
    if (depth > maxDepth) return fail("classes nest too deeply");
    ++at;
    bool negative = eat("^");
    CodeSet current;
    std::optional<CodeSet> left; // of &&
    bool first = true;
    for (;; first = false) {
      if (end()) return fail("expected ']'");
      if (peek() == ']' && !first) {
        ++at;
        break;
      }
      if (eat("&&")) {
        left = left ? left->intersect(current) : current;
        current = CodeSet();
        continue;
      }
      if (peek() == '[') {
        if (source.substr(at, 2) == "[:") return refuse("a POSIX class");
        LATHE_ASSIGN_OR_RETURN(CodeSet inner, bracket(depth + 1));
        current.add(inner);
        continue;
      }
      bool single = true;
      CodeSet item;
      if (peek() == '\\') {
        LATHE_ASSIGN_OR_RETURN(item, escapedSet(single));
      } else {
        uint32_t cp = take();
        item = CodeSet::of(cp, cp);
      }
      bool isRange = single && peek() == '-' && at + 1 < source.size() && source[at + 1] != ']';
      if (isRange) {
        ++at;
        uint32_t low = item.parts()[0].first, high;
        if (peek() == '\\') {
          bool singleEnd;
          LATHE_ASSIGN_OR_RETURN(CodeSet endItem, escapedSet(singleEnd));
          if (!singleEnd) return fail("a range ends in a class");
          high = endItem.parts()[0].first;
        } else {
          high = take();
        }
        if (low > high) return fail("a range is reversed");
        item = CodeSet::of(low, high);
      }
      current.add(item);
      if (ignoreCase)
        for (const unicode::Range &range : item.parts())
          for (uint32_t cp = range.first; single && cp <= range.last && cp - range.first < 1024; ++cp)
            for (uint32_t variant : unicode::caseVariants(cp))
              current.add(variant, variant);
    }
    if (left) current = left->intersect(current);
    return negative ? current.complement() : current;
  }

  // --- instructions ---

  Status put(Instruction instruction) {
    if (program.code.size() >= maxInstructions)
      return makeError(StatusCode::resourceExhausted, "pattern: more than %zu instructions", maxInstructions);
    program.code.push_back(instruction);
    return Status();
  }
  uint32_t here() const { return static_cast<uint32_t>(program.code.size()); }

  Status emit(uint32_t index) {
    const Node &node = nodes[index];
    // Empty groups emit nothing, however often they are repeated: count the visits as well.
    if (++visits > 50 * maxInstructions) return makeError(StatusCode::resourceExhausted, "pattern: too many repeats");
    switch (node.kind) {
    case Node::empty:
      return Status();
    case Node::set:
      return put({Op::consume, node.setIndex});
    case Node::sequence:
      for (uint32_t child : node.children)
        LATHE_RETURN_IF_ERROR(emit(child));
      return Status();
    case Node::choice: {
      std::vector<uint32_t> exits;
      for (size_t i = 0; i < node.children.size(); ++i) {
        bool last = i + 1 == node.children.size();
        uint32_t split = here();
        if (!last) LATHE_RETURN_IF_ERROR(put({Op::split, split + 1, 0}));
        LATHE_RETURN_IF_ERROR(emit(node.children[i]));
        if (last) break;
        exits.push_back(here());
        LATHE_RETURN_IF_ERROR(put({Op::jump}));
        program.code[split].y = here();
      }
      for (uint32_t exit : exits)
        program.code[exit].x = here();
      return Status();
    }
    case Node::repeat:
      return emitRepeat(node);
    case Node::assertion:
      if (node.op >= Op::lineStart) program.needsPrevious = true;
      return put({node.op, node.setIndex});
    case Node::ahead:
      if (inLookahead)
        return makeError(StatusCode::unsupported, "pattern: a lookahead inside a lookahead is not supported");
      for (uint32_t i = 0; i < pendingAhead.size(); ++i)
        if (pendingAhead[i] == node.children[0]) // a repeat emits its operand several times
          return put({node.negative ? Op::notAhead : Op::ahead, i});
      if (pendingAhead.size() == maxLookaheads)
        return makeError(StatusCode::unsupported, "pattern: more than %zu lookaheads are not supported", maxLookaheads);
      pendingAhead.push_back(node.children[0]);
      return put({node.negative ? Op::notAhead : Op::ahead, static_cast<uint32_t>(pendingAhead.size() - 1)});
    }
    return Status();
  }

  Status emitRepeat(const Node &node) {
    uint32_t child = node.children[0];
    uint32_t set = nodes[child].setIndex; // of a possessive repeat
    bool lazy = node.mode == Node::lazy, possessive = node.mode == Node::possessive;
    auto split = [&](uint32_t stay, uint32_t leave) {
      return lazy ? Instruction{Op::split, leave, stay} : Instruction{Op::split, stay, leave};
    };
    for (uint32_t i = 0; i < node.least; ++i)
      LATHE_RETURN_IF_ERROR(emit(child));
    if (node.most == unbounded) {
      uint32_t loop = here();
      LATHE_RETURN_IF_ERROR(put({Op::split}));
      LATHE_RETURN_IF_ERROR(emit(child));
      LATHE_RETURN_IF_ERROR(put({Op::jump, loop}));
      program.code[loop] = split(loop + 1, here());
      // X++ gives nothing back: it ends where no X follows.
      return possessive ? put({Op::nextNot, set}) : Status();
    }
    std::vector<uint32_t> leaves;
    for (uint32_t i = node.least; i < node.most; ++i) {
      leaves.push_back(here());
      LATHE_RETURN_IF_ERROR(put({Op::split}));
      LATHE_RETURN_IF_ERROR(emit(child));
    }
    if (possessive && !leaves.empty()) {
      // All copies taken: leave at once. Fewer: only where no X follows.
      uint32_t done = here();
      LATHE_RETURN_IF_ERROR(put({Op::jump, done + 2}));
      LATHE_RETURN_IF_ERROR(put({Op::nextNot, set}));
      for (uint32_t leave : leaves)
        program.code[leave] = split(leave + 1, done + 1);
      return Status();
    }
    for (uint32_t leave : leaves)
      program.code[leave] = split(leave + 1, here());
    return Status();
  }

  std::string_view source;
  size_t at = 0;
  size_t visits = 0;
  bool ignoreCase = false, inLookahead = false;
  std::vector<Node> nodes;
  std::vector<uint32_t> pendingAhead;
  Program program;
};

} // namespace

Result<Program> parse(std::string_view source) { return Parser(source).run(); }

} // namespace lathe::pattern
