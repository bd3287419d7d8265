//===- Terms.cpp - constructors of terms ------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Terms.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/bit.h"
#include <cmath>
#include <cstdio>

using namespace mlir;

namespace lathe::raise {

static const char *const kindNames[] = {"embed", "positions", "past", "history", "linear", "add", "mul", "mul_group", "add_group", "scale",
                                        "add_number", "mul_weight", "add_weight", "mul_table", "add_table", "unary", "last_row", "mean", "slice", "concat",
                                        "normalize", "centre", "rms_norm", "layer_norm", "activation", "rope", "scores", "capped", "probabilities", "attention"};

std::string Weight::key() const {
  char text[256];
  auto pointer = [](onnx::ParamOp op) { return static_cast<const void *>(op.getOperation()); };
  std::snprintf(text, sizeof(text), "%p/%p/%p %d%d %lld-%lld %lldx%lld q%lld/%lld u%lld", pointer(param), pointer(scales), pointer(zeros), transpose, plusOne,
                (long long)begin, (long long)end, (long long)rows, (long long)columns, (long long)bits, (long long)block, (long long)unropeHeads);
  std::string out = text;
  if (qdq || !zeroNumbers.empty()) {
    out += " qdq" + std::to_string(qdqBlock[0]) + "x" + std::to_string(qdqBlock[1]);
    for (double x : scaleNumbers)
      out += "," + std::to_string(llvm::bit_cast<uint64_t>(x)); // decimals would make scales equal that are not
    for (double x : zeroNumbers)
      out += ";" + std::to_string(llvm::bit_cast<uint64_t>(x));
  }
  return out;
}

TermId Terms::make(Term term) {
  char text[256];
  std::snprintf(text, sizeof(text), "%d w%lld g%lld %lld %lld %a %a t%d %d ", static_cast<int>(term.kind), (long long)term.width, (long long)term.group, (long long)term.a,
                (long long)term.b, term.number, term.number2, term.table, term.table2);
  std::string key = text + term.name;
  if (std::isfinite(term.hidden)) key += " h" + std::to_string(llvm::bit_cast<uint64_t>(term.hidden)) + " ";
  for (TermId in : term.in)
    key += " " + std::to_string(in);
  for (int64_t size : term.sizes)
    key += "," + std::to_string(size);
  if (term.weight) key += " " + term.weight.key();
  if (term.bias) key += " " + term.bias.key();
  auto [it, fresh] = known.emplace(key, static_cast<TermId>(terms.size()));
  if (fresh) terms.push_back(std::move(term));
  return it->second;
}

Term Terms::start(Kind kind, ArrayRef<TermId> in, int64_t width) {
  Term term{.kind = kind, .loc = loc};
  term.in.assign(in.begin(), in.end());
  term.width = width;
  return term;
}

int Terms::intern(Table table) {
  for (auto [k, known] : llvm::enumerate(tables))
    if (known.columns == table.columns && known.values == table.values && known.angles == table.angles) return static_cast<int>(k);
  tables.push_back(std::move(table));
  return static_cast<int>(tables.size()) - 1;
}

TermId Terms::leaf(Kind kind, int64_t width, int64_t a, const Weight &weight) {
  Term term = start(kind, {}, width);
  term.a = a;
  term.weight = weight;
  return make(term);
}

TermId Terms::history(TermId rows, int64_t past) {
  Term term = start(Kind::history, {rows}, width(rows));
  term.a = past;
  return make(term);
}

TermId Terms::linear(TermId x, const Weight &weight, const Weight &bias) {
  if (isLast(x)) return lastRow(linear(terms[x].in[0], weight, bias));
  Term term = start(Kind::linear, {x}, weight.end ? weight.end - weight.begin : weight.rows);
  term.weight = weight;
  term.bias = bias;
  return make(term);
}

TermId Terms::add(TermId x, TermId y) {
  if (isLast(x) && isLast(y)) return lastRow(add(terms[x].in[0], terms[y].in[0]));
  if (TermId rotation = asRotation(x, y); rotation >= 0) return rotation;
  if (x > y) std::swap(x, y);
  return make(start(Kind::add, {x, y}, width(x)));
}

TermId Terms::mul(TermId x, TermId y) {
  if (isLast(x) && isLast(y)) return lastRow(mul(terms[x].in[0], terms[y].in[0]));
  if (x == y) return unary("square", x);
  for (auto [a, b] : {std::pair(x, y), std::pair(y, x)}) {
    if (is(b, Kind::unary, "sigmoid") && terms[b].in[0] == a) return activation("silu", a);
    if (is(b, Kind::unary, "square") && terms[b].in[0] == a) return unary("cube", a);
  }
  if (x > y) std::swap(x, y);
  TermId product = make(start(Kind::mul, {x, y}, width(x)));
  TermId gelu = asGelu(product);
  return gelu >= 0 ? gelu : product;
}

TermId Terms::mulGroup(TermId x, TermId y, int64_t group) {
  if (isLast(x) && isLast(y)) return lastRow(mulGroup(terms[x].in[0], terms[y].in[0], group));
  if (TermId normal = asNormalize(x, y, group); normal >= 0) return normal;
  Term term = start(Kind::mulGroup, {x, y}, width(x));
  term.group = group;
  return make(term);
}

TermId Terms::addGroup(TermId x, TermId y, int64_t group) {
  if (isLast(x) && isLast(y)) return lastRow(addGroup(terms[x].in[0], terms[y].in[0], group));
  if (is(y, Kind::unary, "neg") && is(terms[y].in[0], Kind::mean) && terms[terms[y].in[0]].in[0] == x && terms[terms[y].in[0]].group == group) {
    Term term = start(Kind::centre, {x}, width(x));
    term.group = group;
    return make(term);
  }
  Term term = start(Kind::addGroup, {x, y}, width(x));
  term.group = group;
  return make(term);
}

TermId Terms::scale(TermId x, double c) {
  if (isLast(x)) return lastRow(scale(terms[x].in[0], c));
  if (c == 1) return x;
  if (is(x, Kind::scores)) {
    // Before a mask, or after one: a mask is 0 and what hides a key, which a positive scale keeps as long as it still does.
    Term term = terms[x];
    if (c > 0 && !term.number2 && !(term.hidden * c > -1000)) {
      term.number *= c;
      term.hidden *= c;
      return make(term);
    }
  }
  if (is(x, Kind::capped) && c > 0 && terms[x].number2 == 0) {
    // scores / c, tanh, * c.
    Term term = terms[terms[x].in[0]];
    term.number *= c; // c tanh(scale / c q.k): llm.attention divides by the cap itself
    term.number2 = c;
    return make(term);
  }
  if (is(x, Kind::unary, "neg") && c == -1) return terms[x].in[0];
  if (c == -1) return unary("neg", x);
  Term term = start(Kind::scale, {x}, width(x));
  term.number = c;
  TermId product = make(term);
  TermId gelu = asGelu(product);
  return gelu >= 0 ? gelu : product;
}

TermId Terms::addNumber(TermId x, double c) {
  if (isLast(x)) return lastRow(addNumber(terms[x].in[0], c));
  if (c == 0) return x;
  Term term = start(Kind::addNumber, {x}, width(x));
  term.number = c;
  return make(term);
}

TermId Terms::mulWeight(TermId x, const Weight &w) {
  if (isLast(x)) return lastRow(mulWeight(terms[x].in[0], w));
  // The weight of a norm.
  if (is(x, Kind::normalize) && terms[x].group == w.rows) {
    if (is(terms[x].in[0], Kind::centre) && terms[terms[x].in[0]].group == w.rows) {
      Term term = start(Kind::layerNorm, {terms[terms[x].in[0]].in[0]}, width(x));
      term.weight = w;
      term.number = terms[x].number;
      term.group = w.rows;
      return make(term); // its bias follows
    }
    return rmsNorm(terms[x].in[0], w, terms[x].number);
  }
  Term term = start(Kind::mulWeight, {x}, width(x));
  term.group = w.rows;
  term.weight = w;
  return make(term);
}

TermId Terms::addWeight(TermId x, const Weight &w) {
  if (isLast(x)) return lastRow(addWeight(terms[x].in[0], w));
  Term term = terms[x];
  if (((term.kind == Kind::linear && w.rows == term.width) || (term.kind == Kind::layerNorm && w.rows == term.group)) && !term.bias && !w.plusOne) {
    term.bias = w;
    return make(term);
  }
  term = start(Kind::addWeight, {x}, width(x));
  term.group = w.rows;
  term.weight = w;
  return make(term);
}

TermId Terms::mulTable(TermId x, int table) {
  Term term = start(Kind::mulTable, {x}, width(x));
  term.table = table;
  term.group = tables[table].columns;
  return make(term);
}

TermId Terms::addTable(TermId x, int table) {
  Term term = start(Kind::addTable, {x}, width(x));
  term.table = table;
  term.group = tables[table].columns;
  return make(term);
}

TermId Terms::unary(StringRef name, TermId x, double number) {
  if (isLast(x)) return lastRow(unary(name, terms[x].in[0], number));
  if (name == "neg" && is(x, Kind::unary, "neg")) return terms[x].in[0];
  if (name == "pow") {
    if (number == 1) return x;
    if (number == 2) return unary("square", x);
    if (number == 3) return unary("cube", x);
    if (number == 0.5) return unary("sqrt", x);
    if (number == -0.5) return unary("reciprocal", unary("sqrt", x));
    if (number == -1) return unary("reciprocal", x);
  }
  if (name == "relu") return activation("relu", x);
  if (name == "tanh" && is(x, Kind::scores) && terms[x].a < 0) { // of masked scores it would bring back what the mask hides
    Term term = terms[x];
    term.kind = Kind::capped;
    term.in = {x};
    return make(term);
  }
  Term term = start(Kind::unary, {x}, width(x));
  term.name = name.str();
  term.number = number;
  return make(term);
}

TermId Terms::lastRow(TermId x) { return isLast(x) ? x : make(start(Kind::lastRow, {x}, width(x))); }

TermId Terms::mean(TermId x, int64_t group) {
  if (isLast(x)) return lastRow(mean(terms[x].in[0], group));
  Term term = start(Kind::mean, {x}, width(x) / group);
  term.group = group;
  return make(term);
}

TermId Terms::slice(TermId x, int64_t group, int64_t begin, int64_t end) {
  if (isLast(x)) return lastRow(slice(terms[x].in[0], group, begin, end));
  // A part of a concatenation that covers whole parts; concatenations may be nested as deep as a graph is.
  for (bool within = true; within && !(begin == 0 && end == group);) {
    within = false;
    const Term &joined = terms[x];
    if (joined.kind != Kind::concat || joined.group != group) break;
    int64_t at = 0;
    for (auto [part, size] : llvm::zip(joined.in, joined.sizes)) {
      within = begin >= at && end <= at + size;
      if (within) {
        x = part, group = size, begin -= at, end -= at;
        break;
      }
      at += size;
    }
  }
  if (isLast(x)) return lastRow(slice(terms[x].in[0], group, begin, end));
  if (begin == 0 && end == group) return x;
  Term source = terms[x];
  int64_t all = source.width;
  // Columns of a linear are rows of its weight.
  if (source.kind == Kind::linear && group == all && !source.weight.plusOne) {
    int64_t from = source.weight.begin;
    source.weight.begin = from + begin;
    source.weight.end = from + end;
    source.width = end - begin;
    if (source.bias) {
      int64_t first = source.bias.begin;
      source.bias.begin = first + begin;
      source.bias.end = first + end;
    }
    return make(source);
  }
  if (source.kind == Kind::slice && source.group && group == source.b - source.a)
    return slice(source.in[0], source.group, source.a + begin, source.a + end);
  if (source.kind == Kind::slice && group == all && source.group == terms[source.in[0]].width)
    return slice(source.in[0], source.group, source.a + begin, source.a + end);
  Term term = start(Kind::slice, {x}, all / group * (end - begin));
  term.group = group;
  term.a = begin;
  term.b = end;
  return make(term);
}

TermId Terms::concat(ArrayRef<TermId> parts, ArrayRef<int64_t> sizes) {
  if (parts.size() == 1) return parts[0];
  // The whole of what was cut.
  const Term &first = terms[parts[0]];
  if (first.kind == Kind::slice) {
    TermId source = first.in[0];
    int64_t group = first.group, at = 0;
    bool whole = true;
    for (auto [part, size] : llvm::zip(parts, sizes)) {
      const Term &t = terms[part];
      // Parts that were cut into groups of their own are mixed, not put together.
      whole &= t.kind == Kind::slice && t.in[0] == source && t.group == group && t.a == at && size == t.b - t.a;
      at = t.b;
    }
    if (whole && at == group) return source;
  }
  if (TermId rotation = asRotatedHalves(parts, sizes); rotation >= 0) return rotation;
  int64_t all = 0, total = 0;
  for (auto [part, size] : llvm::zip(parts, sizes)) {
    all += width(part);
    total += size;
  }
  // Partial rotation: the rest of a head goes by.
  if (parts.size() == 2 && is(parts[0], Kind::rope) && is(parts[1], Kind::slice)) {
    const Term rotated = terms[parts[0]], rest = terms[parts[1]];
    if (is(rotated.in[0], Kind::slice)) {
      const Term front = terms[rotated.in[0]];
      bool fits = front.in[0] == rest.in[0] && front.group == rest.group && front.a == 0 && front.b == rest.a && rest.b == rest.group;
      // The front of each group as one, not groups within it.
      if (fits && rotated.group == front.b && sizes[0] == front.b && total == rest.group)
        return rope(rest.in[0], rest.group, rotated.a, rotated.table, rotated.table2, rotated.b);
    }
  }
  Term term = start(Kind::concat, parts, all);
  term.sizes.assign(sizes.begin(), sizes.end());
  term.group = total;
  return make(term);
}

TermId Terms::rmsNorm(TermId x, const Weight &w, double eps) {
  if (isLast(x)) return lastRow(rmsNorm(terms[x].in[0], w, eps));
  Term term = start(Kind::rmsNorm, {x}, width(x));
  term.weight = w;
  term.number = static_cast<float>(eps);
  term.group = w.rows;
  return make(term);
}

TermId Terms::layerNorm(TermId x, const Weight &w, const Weight &b, double eps) {
  if (isLast(x)) return lastRow(layerNorm(terms[x].in[0], w, b, eps));
  Term term = start(Kind::layerNorm, {x}, width(x));
  term.weight = w;
  term.bias = b;
  term.number = static_cast<float>(eps);
  term.group = w.rows;
  return make(term);
}

TermId Terms::activation(StringRef name, TermId x) {
  if (isLast(x)) return lastRow(activation(name, terms[x].in[0]));
  Term term = start(Kind::activation, {x}, width(x));
  term.name = name.str();
  return make(term);
}

TermId Terms::rope(TermId x, int64_t group, int64_t rotated, int cosines, int sines, bool interleaved) {
  Term term = start(Kind::rope, {x}, width(x));
  term.group = group;
  term.a = rotated;
  term.b = interleaved;
  term.table = cosines;
  term.table2 = sines;
  return make(term);
}

TermId Terms::scores(TermId q, TermId k, int64_t heads, int64_t headSize) {
  double c = 1;
  for (TermId *side : {&q, &k})
    while (is(*side, Kind::scale)) {
      c *= terms[*side].number;
      *side = terms[*side].in[0];
    }
  Term term = start(Kind::scores, {q, k}, heads);
  term.group = headSize;
  term.number = c;
  term.a = -1;
  return make(term);
}

TermId Terms::masked(TermId scores, int64_t window, double hidden) {
  Term term = terms[scores];
  term.hidden = std::max(term.hidden, hidden);
  // Two masks: the narrower window holds.
  term.a = term.a > 0 && (window == 0 || term.a < window) ? term.a : window;
  return make(term);
}

TermId Terms::softmax(TermId scores) { return make(start(Kind::probabilities, {scores}, width(scores))); }

TermId Terms::attend(TermId probabilities, TermId v, int64_t valueSize) {
  const Term from = terms[terms[probabilities].in[0]];
  Term term = start(Kind::attention, {from.in[0], from.in[1], v}, from.width * valueSize);
  term.a = from.a;
  term.b = from.width;
  term.group = from.group;
  term.number = from.number;
  term.number2 = from.number2;
  return make(term);
}

std::string Terms::text(TermId id, int depth) const {
  constexpr size_t longest = 400, longestName = 60, mostInputs = 4; // a damaged file's terms are as wide as it is long
  std::string out;
  auto write = [&](auto &self, TermId at, int left) -> void {
    const Term &t = terms[at];
    if (out.size() > longest) {
      out += "...";
      return;
    }
    out += kindNames[static_cast<int>(t.kind)];
    if (!t.name.empty()) out += " " + t.name;
    if (t.group) out += " group " + std::to_string(t.group);
    if (t.number) out += " " + std::to_string(t.number);
    if (t.weight) {
      StringRef name = onnx::ParamOp(t.weight.param).getSymName();
      out += " @" + name.take_front(longestName).str() + (name.size() > longestName ? "..." : "");
    }
    if (t.in.empty()) return;
    if (left == 0) {
      out += "(...)";
      return;
    }
    out += "(";
    for (size_t k = 0; k < std::min(t.in.size(), mostInputs); ++k) {
      if (k) out += ", ";
      self(self, t.in[k], left - 1);
    }
    out += t.in.size() > mostInputs ? " and " + std::to_string(t.in.size() - mostInputs) + " more)" : ")";
  };
  write(write, id, depth);
  return out;
}

} // namespace lathe::raise
