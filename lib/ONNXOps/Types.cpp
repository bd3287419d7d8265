//===- Types.cpp - tools of the type functions --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXOps/TypeTable.h"

namespace lathe::ops {
using namespace mlir;

bool isBool(Type t) { return t.isInteger(1); }
bool isInt(Type t) { return isa<IntegerType>(t) && !t.isInteger(1); }
bool isUnsigned(Type t) { return t.isUnsignedInteger(); }
bool isFloat(Type t) { return isa<FloatType>(t); }

Type elementType(MLIRContext *c, int64_t onnxType) {
  auto integer = [&](unsigned width, bool isSigned = true) -> Type {
    return IntegerType::get(c, width, isSigned ? IntegerType::Signless : IntegerType::Unsigned);
  };
  switch (onnxType) { // TensorProto.DataType of onnx.proto
  case 1: return Float32Type::get(c);
  case 2: return integer(8, false);
  case 3: return integer(8);
  case 4: return integer(16, false);
  case 5: return integer(16);
  case 6: return integer(32);
  case 7: return integer(64);
  case 9: return integer(1);
  case 10: return Float16Type::get(c);
  case 11: return Float64Type::get(c);
  case 12: return integer(32, false);
  case 13: return integer(64, false);
  case 16: return BFloat16Type::get(c);
  case 17: return Float8E4M3FNType::get(c);
  case 18: return Float8E4M3FNUZType::get(c);
  case 19: return Float8E5M2Type::get(c);
  case 20: return Float8E5M2FNUZType::get(c);
  case 21: return integer(4, false);
  case 22: return integer(4);
  case 23: return Float4E2M1FNType::get(c);
  case 24: return Float8E8M0FNUType::get(c);
  }
  return {};
}

std::string TypeContext::describe(unsigned i) const {
  if (!has(i)) return "nothing";
  std::string text = elementText(element(i)) + "[";
  for (auto [k, n] : llvm::enumerate(shape(i)))
    text += (k ? "," : "") + (n.known ? std::to_string(*n.known) : std::string("?"));
  return text + "]";
}

LogicalResult TypeContext::require(Dim condition, const Twine &expected, const Twine &found) {
  if (condition.is(0)) return node.error(expected, found);
  if (!condition.known && condition.value && runtimeCheck) runtimeCheck(condition, expected.str());
  return success();
}

FailureOr<Dims> TypeContext::ints(unsigned i, const char *what) {
  if (!has(i)) return node.error(Twine("input ") + Twine(i) + " (" + what + ")", "nothing");
  if (!isInt(element(i)) || rank(i) > 1) return node.error(Twine(what) + " as integers of rank 0 or 1", describe(i));
  if (std::optional<Dims> values = elements(i)) return *values;
  return node.error(Twine(what) + " of known length", describe(i));
}

FailureOr<Dims> TypeContext::list(StringRef attribute, unsigned i, bool *given) {
  if (given) *given = true;
  if (auto values = node.integers(attribute)) {
    Dims list;
    for (int64_t v : *values)
      list.push_back(v);
    return list;
  }
  if (has(i)) return ints(i, attribute.str().c_str());
  if (given) *given = false;
  return Dims();
}

FailureOr<int64_t> TypeContext::axis(int64_t rank, int64_t otherwise, const char *name, bool end) {
  int64_t a = node.integer(name, otherwise), last = end ? rank : rank - 1;
  if (a < -rank || a > last) return node.error(Twine("an ") + name + " of " + Twine(-rank) + " .. " + Twine(last), Twine(a));
  return a < 0 ? a + rank : a;
}

FailureOr<Dims> TypeContext::broadcast(ArrayRef<unsigned> inputs) {
  int64_t most = 0;
  for (unsigned i : inputs)
    most = std::max(most, rank(i));
  Dims all(most, Dim(1));
  for (unsigned i : inputs)
    for (int64_t k = 0; k < rank(i); ++k) {
      Dim &to = all[most - rank(i) + k], from = shape(i)[k];
      if (from.is(1)) continue;
      if (to.is(1)) {
        to = from;
        continue;
      }
      Dim ok = d.either(d.equal(to, from), d.either(d.equal(to, 1), d.equal(from, 1)));
      std::string found;
      for (unsigned j : inputs)
        found += (found.empty() ? "" : " and ") + describe(j);
      if (failed(require(ok, "shapes that broadcast", found))) return failure();
      if (from.known && !to.known) to = from; // neither is 1: the known one decides
      else if (!from.known && !to.known) to = d.select(d.equal(to, 1), from, to);
    }
  return all;
}

Dims axisFlags(const DimMath &d, ArrayRef<Dim> axes, int64_t rank) {
  Dims flags;
  for (int64_t k = 0; k < rank; ++k) {
    Dim flag(0);
    for (Dim a : axes)
      flag = d.either(flag, d.equal(d.wrap(a, rank), k));
    flags.push_back(flag);
  }
  return flags;
}

Dims withoutFlagged(const DimMath &d, ArrayRef<Dim> list, ArrayRef<Dim> flags, int64_t count) {
  Dims out;
  for (int64_t j = 0; j < count; ++j) {
    Dim place(0), entry(0);
    for (auto [x, flag] : llvm::zip(list, flags)) {
      Dim here = d.both(d.negate(flag), d.equal(place, j));
      entry = d.select(here, x, entry);
      place = d.add(place, d.negate(flag));
    }
    out.push_back(entry);
  }
  return out;
}

Dims insertFlagged(const DimMath &d, ArrayRef<Dim> list, ArrayRef<Dim> flags, Dim fill) {
  Dims out;
  Dim place(0);
  for (Dim flag : flags) {
    out.push_back(d.select(flag, fill, d.pick(list, place)));
    place = d.add(place, d.negate(flag));
  }
  return out;
}

FailureOr<SliceSpec> sliceSpec(TypeContext &c) {
  const DimMath &d = c.d;
  int64_t rank = c.rank(0);
  auto starts = c.list("starts", 1), ends = c.list("ends", 2);
  bool hasAxes, hasSteps;
  auto axes = c.list("axes", 3, &hasAxes), steps = c.list("steps", 4, &hasSteps);
  if (failed(starts) || failed(ends) || failed(axes) || failed(steps)) return failure();
  size_t n = starts->size();
  if (ends->size() != n || (hasAxes && axes->size() != n) || (hasSteps && steps->size() != n) || int64_t(n) > rank)
    return c.node.error("starts, ends, axes and steps of one length, at most the rank", Twine(n) + ", " + Twine(ends->size()) + ", " + Twine(axes->size()) + ", " + Twine(steps->size()));
  SliceSpec s;
  s.start.assign(rank, Dim(0));
  s.step.assign(rank, Dim(1));
  s.size.assign(c.shape(0).begin(), c.shape(0).end());
  for (size_t i = 0; i < n; ++i) {
    Dim step = hasSteps ? (*steps)[i] : Dim(1);
    Dim at = hasAxes ? d.wrap((*axes)[i], rank) : Dim(int64_t(i));
    if (failed(c.require(d.negate(d.equal(step, 0)), "steps that are not 0", "0"))) return failure();
    if (failed(c.require(d.both(d.less(-1, at), d.less(at, rank)), Twine("axes of ") + Twine(-rank) + " .. " + Twine(rank - 1), text(hasAxes ? (*axes)[i] : Dim(int64_t(i)))))) return failure();
    for (int64_t k = 0; k < rank; ++k) {
      Dim here = d.equal(at, k);
      if (here.is(0)) continue;
      Dim extent = c.shape(0)[k];
      Dim back = d.less(step, 0);
      auto clamp = [&](Dim x) { // forwards 0 .. extent, backwards -1 .. extent-1
        x = d.wrap(x, extent);
        Dim high = d.sub(extent, back), low = d.sub(0, back);
        return d.min(d.max(x, low), high);
      };
      // Backwards a start of less than -extent stays at 0 (an empty axis has no such element), an end becomes -1.
      Dim from = clamp((*starts)[i]), to = clamp((*ends)[i]);
      from = d.select(back, d.min(d.max(from, 0), d.sub(extent, 1)), from);
      Dim size = d.max(d.ceilDiv(d.sub(to, from), step), 0);
      s.start[k] = d.select(here, from, s.start[k]);
      s.step[k] = d.select(here, step, s.step[k]);
      s.size[k] = d.select(here, size, s.size[k]);
    }
  }
  return s;
}

FailureOr<PadSpec> padSpec(TypeContext &c) {
  const DimMath &d = c.d;
  int64_t rank = c.rank(0);
  auto pads = c.list("pads", 1);
  bool hasAxes = c.has(3);
  auto axes = hasAxes ? c.ints(3, "axes") : FailureOr<Dims>(Dims());
  if (failed(pads) || failed(axes)) return failure();
  int64_t n = hasAxes ? int64_t(axes->size()) : rank;
  if (int64_t(pads->size()) != 2 * n) return c.node.error(Twine(2 * n) + " pads", Twine(pads->size()));
  if (failed(distinctAxes(c, *axes, rank))) return failure();
  PadSpec p;
  p.before.assign(rank, Dim(0));
  p.after.assign(rank, Dim(0));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < rank; ++k) {
      Dim here = hasAxes ? d.equal(d.wrap((*axes)[i], rank), k) : Dim(i == k);
      p.before[k] = d.select(here, (*pads)[i], p.before[k]);
      p.after[k] = d.select(here, (*pads)[n + i], p.after[k]);
    }
  return p;
}

FailureOr<EinsumSpec> einsumSpec(TypeContext &c) {
  std::string equation;
  for (char ch : c.node.string("equation", ""))
    if (ch != ' ') equation += ch;
  auto bad = [&] { return c.node.error("an equation of letters, '...', ',' and '->' that fits the inputs", "'" + equation + "'"); };
  auto [left, right] = StringRef(equation).split("->");
  bool hasOutput = StringRef(equation).contains("->");
  SmallVector<StringRef> terms;
  left.split(terms, ',');
  if (terms.size() != c.operands.size()) return bad();
  EinsumSpec spec;
  llvm::SmallDenseMap<char, int> letters;
  SmallVector<int> dots; // index numbers of the ellipsis, outermost first
  int counts[128] = {};
  // The widest ellipsis sets how many dimensions it stands for.
  int64_t widest = 0;
  for (auto [i, term] : llvm::enumerate(terms)) {
    int64_t named = llvm::count_if(term, [](char ch) { return isalpha(static_cast<unsigned char>(ch)); });
    if (term.contains("...")) widest = std::max(widest, c.rank(i) - named);
  }
  for (int64_t k = 0; k < widest; ++k)
    dots.push_back(spec.indices++);
  auto parse = [&](StringRef term, int64_t rank, SmallVector<int> &out) {
    int64_t named = llvm::count_if(term, [](char ch) { return isalpha(static_cast<unsigned char>(ch)); });
    bool seen = false;
    while (!term.empty()) {
      if (term.consume_front("...")) {
        int64_t n = rank < 0 ? widest : rank - named;
        if (seen || n < 0) return false;
        seen = true;
        for (int64_t k = widest - n; k < widest; ++k)
          out.push_back(dots[k]);
        continue;
      }
      char ch = term.front();
      term = term.drop_front();
      if (!isalpha(static_cast<unsigned char>(ch))) return false;
      if (!letters.count(ch)) {
        if (rank < 0) return false; // an output index that no input has
        letters[ch] = spec.indices++;
      }
      if (rank >= 0) ++counts[int(ch)];
      out.push_back(letters[ch]);
    }
    return rank < 0 || int64_t(out.size()) == rank;
  };
  for (auto [i, term] : llvm::enumerate(terms)) {
    spec.inputs.emplace_back();
    if (!parse(term, c.rank(i), spec.inputs.back())) return bad();
  }
  if (hasOutput) {
    if (!parse(right, -1, spec.output)) return bad();
  } else {
    spec.output.assign(dots.begin(), dots.end());
    for (int ch = 0; ch < 128; ++ch)
      if (counts[ch] == 1) spec.output.push_back(letters[char(ch)]);
  }
  return spec;
}

} // namespace lathe::ops
