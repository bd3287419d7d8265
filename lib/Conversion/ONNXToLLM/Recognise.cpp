//===- Recognise.cpp - norms, activations and rotations among terms ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Terms.h"
#include <cmath>

using namespace mlir;

namespace lathe::raise {

/// A GELU has no more products and scales than these; longer ones are not taken apart (they share parts, which a walk would visit again and again).
constexpr size_t maxParts = 16;

static bool near(double a, double b) { return std::fabs(a - b) <= 1e-5 * std::fabs(b); }

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) and 0.5 x (1 + erf(x / sqrt 2)), in any order of the factors
/// (Hendrycks and Gimpel 2016).
TermId Terms::asGelu(TermId product) {
  SmallVector<TermId> factors, todo = {product};
  double c = 1;
  for (size_t steps = 0; !todo.empty(); ++steps) {
    if (steps == maxParts) return -1;
    TermId id = todo.pop_back_val();
    const Term &t = terms[id];
    if (t.kind == Kind::mul) todo.append(t.in.begin(), t.in.end());
    else if (t.kind == Kind::scale) {
      c *= t.number;
      todo.push_back(t.in[0]);
    } else factors.push_back(id);
  }
  if (factors.size() != 2 || !near(c, 0.5)) return -1;
  for (int k = 0; k < 2; ++k) {
    TermId x = factors[k], one = factors[1 - k];
    if (!is(one, Kind::addNumber) || terms[one].number != 1) continue;
    TermId curve = terms[one].in[0];
    if (is(curve, Kind::unary, "erf")) {
      TermId inner = terms[curve].in[0];
      if (is(inner, Kind::scale) && near(terms[inner].number, M_SQRT1_2) && terms[inner].in[0] == x) return activation("gelu_erf", x);
    }
    if (!is(curve, Kind::unary, "tanh")) continue;
    TermId inner = terms[curve].in[0];
    double outer = 1;
    int byX = 0;
    // sqrt(2/pi) (x + c x^3), or x sqrt(2/pi) (1 + c x^2).
    SmallVector<TermId> parts, open = {inner};
    for (size_t steps = 0; !open.empty() && steps < maxParts; ++steps) {
      TermId id = open.pop_back_val();
      if (is(id, Kind::scale)) {
        outer *= terms[id].number;
        open.push_back(terms[id].in[0]);
      } else if (is(id, Kind::mul)) open.append(terms[id].in.begin(), terms[id].in.end());
      else if (id == x) ++byX;
      else parts.push_back(id);
    }
    if (!open.empty() || !near(outer, std::sqrt(2 / M_PI)) || parts.size() != 1) continue;
    const Term &sum = terms[parts[0]];
    auto isPower = [&](TermId id, StringRef power) {
      return is(id, Kind::scale) && near(terms[id].number, 0.044715) && is(terms[id].in[0], Kind::unary, power) && terms[terms[id].in[0]].in[0] == x;
    };
    if (!byX && sum.kind == Kind::add)
      for (int s = 0; s < 2; ++s)
        if (sum.in[s] == x && isPower(sum.in[1 - s], "cube")) return activation("gelu_tanh", x);
    if (byX == 1 && sum.kind == Kind::addNumber && sum.number == 1 && isPower(sum.in[0], "square")) return activation("gelu_tanh", x);
  }
  return -1;
}

/// x * 1 / sqrt(mean(x^2) + eps).
TermId Terms::asNormalize(TermId x, TermId factor, int64_t group) {
  if (!is(factor, Kind::unary, "reciprocal")) return -1;
  TermId root = terms[factor].in[0];
  if (!is(root, Kind::unary, "sqrt")) return -1;
  TermId sum = terms[root].in[0];
  double eps = 0;
  if (is(sum, Kind::addNumber)) {
    eps = terms[sum].number;
    sum = terms[sum].in[0];
  }
  if (!is(sum, Kind::mean) || terms[sum].group != group || eps < 0) return -1;
  TermId square = terms[sum].in[0];
  if (!is(square, Kind::unary, "square") || terms[square].in[0] != x) return -1;
  Term term = start(Kind::normalize, {x}, width(x));
  term.group = group;
  term.number = static_cast<float>(eps);
  return make(term);
}

/// Every column once of a table whose halves are equal, or with |pairs| each column and the next. -1: they are not.
int Terms::halfOf(int id, bool pairs) {
  const Table &t = tables[id];
  if (t.columns % 2) return -1;
  int64_t half = t.columns / 2;
  Table out{t.tokens, half, {}, {}};
  for (int64_t r = 0; r < t.tokens; ++r)
    for (int64_t k = 0; k < half; ++k) {
      int64_t at = r * t.columns + (pairs ? 2 * k : k);
      if (t.values[at] != t.values[at + (pairs ? 1 : half)]) return -1;
      out.values.push_back(t.values[at]);
      if (!t.angles.empty()) out.angles.push_back(t.angles[at]);
    }
  return intern(std::move(out));
}

/// x cos + rotate_half(x) sin, with tables as wide as what is rotated; or each two elements turned, with every cosine twice.
TermId Terms::asRotation(TermId x, TermId y) {
  if (!is(x, Kind::mulTable) || !is(y, Kind::mulTable)) return -1;
  for (auto [plain, turned] : {std::pair(x, y), std::pair(y, x)}) {
    TermId source = terms[plain].in[0], rotated = terms[turned].in[0];
    int64_t whole = terms[plain].group, group = is(rotated, Kind::concat) ? terms[rotated].group : 0, half = group / 2;
    bool pairs = group == 2 && whole != 2;
    if (terms[turned].group != whole || (group != whole && !pairs) || terms[rotated].in.size() != 2) continue;
    TermId first = terms[rotated].in[0], second = terms[rotated].in[1];
    if (!is(first, Kind::unary, "neg") || first == second) continue;
    first = terms[first].in[0];
    // The halves of one source; a source that is itself a slice was cut further (slice(slice) is one slice).
    auto isHalf = [&](TermId part, int64_t begin) { return part == slice(source, group, begin, begin + half); };
    if (!isHalf(first, half) || !isHalf(second, 0)) continue;
    int cosines = halfOf(terms[plain].table, pairs), sines = halfOf(terms[turned].table, pairs);
    if (cosines < 0 || sines < 0) continue;
    return rope(source, whole, whole, cosines, sines, pairs);
  }
  return -1;
}

/// Makes |first| the rows of |first| and |second|, which follow each other. False when they do not.
static bool joinRows(Weight &first, const Weight &second) {
  Weight rest = first;
  rest.begin = second.begin, rest.end = second.end;
  if (!first.end || first.end != second.begin || rest.key() != second.key()) return false;
  first.end = second.end;
  if (first.begin == 0 && first.end == first.rows) first.end = 0;
  return true;
}

/// Halves (or even and odd elements) rotated apart: [a cos - b sin, b cos + a sin].
TermId Terms::asRotatedHalves(ArrayRef<TermId> parts, ArrayRef<int64_t> sizes) {
  if (parts.size() != 2 || sizes[0] != sizes[1] || !is(parts[0], Kind::add) || !is(parts[1], Kind::add)) return -1;
  // Takes v * table apart; a negated product counts as such.
  struct Product {
    TermId value = -1;
    int table = -1;
    bool negative = false;
  };
  auto product = [&](TermId id) {
    Product p;
    if (is(id, Kind::unary, "neg")) {
      p.negative = true;
      id = terms[id].in[0];
    }
    if (!is(id, Kind::mulTable)) return p;
    p.value = terms[id].in[0];
    p.table = terms[id].table;
    if (is(p.value, Kind::unary, "neg")) {
      p.negative = !p.negative;
      p.value = terms[p.value].in[0];
    }
    return p;
  };
  auto sides = [&](TermId sum) { return std::pair(product(terms[sum].in[0]), product(terms[sum].in[1])); };
  auto [p0, p1] = sides(parts[0]);
  auto [p2, p3] = sides(parts[1]);
  if (p0.negative) std::swap(p0, p1); // p0: a cos, p1: -b sin
  if (p0.value < 0 || p1.value < 0 || p2.value < 0 || p3.value < 0 || p0.negative || !p1.negative || p2.negative || p3.negative) return -1;
  if (p2.value != p1.value) std::swap(p2, p3); // p2: b cos, p3: a sin
  if (p2.value != p1.value || p3.value != p0.value || p0.table != p2.table || p1.table != p3.table) return -1;
  const Term a = terms[p0.value], b = terms[p1.value];
  // Halves of a single head were cut from the rows of its linear's weight.
  if (a.kind == Kind::linear && b.kind == Kind::linear) {
    Term whole = a;
    whole.width += b.width;
    bool joined = a.in == b.in && a.width == b.width && joinRows(whole.weight, b.weight) && (a.bias ? b.bias && joinRows(whole.bias, b.bias) : !b.bias);
    if (!joined || sizes[0] != a.width || a.width != tables[p0.table].columns) return -1;
    return rope(make(whole), whole.width, whole.width, p0.table, p1.table, false);
  }
  if (a.kind != Kind::slice || b.kind != Kind::slice || a.in[0] != b.in[0] || a.group != b.group || a.a != 0 || a.b != b.a) return -1;
  int64_t half = a.b - a.a;
  if (b.b - b.a != half) return -1;
  if (sizes[0] == half && a.group == 2 * half && half == tables[p0.table].columns) return rope(a.in[0], a.group, a.group, p0.table, p1.table, false);
  // A partial rotation whose rest follows in a concatenation of its own: the front of each group.
  if (sizes[0] == half && half == tables[p0.table].columns) {
    TermId front = slice(a.in[0], a.group, 0, 2 * half);
    return rope(front, 2 * half, 2 * half, p0.table, p1.table, false);
  }
  // Pairs: the slices are elements 0 and 1 of groups of two.
  if (sizes[0] == 1 && a.group == 2 && half == 1) {
    int64_t group = 2 * tables[p0.table].columns;
    return rope(a.in[0], group, group, p0.table, p1.table, true);
  }
  return -1;
}

} // namespace lathe::raise
