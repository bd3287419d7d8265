//===- Graph.cpp - from onnx ops to the lowering of each ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNXToLinalg/Graph.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace lathe::ops {
using namespace mlir;

/// Elements of a tensor that are followed one by one.
static constexpr size_t mostElements = 64;

DenseElementsAttr storedConstant(ElementsAttr value) {
  auto type = cast<RankedTensorType>(value.getShapedType());
  Type stored = storageType(type.getElementType());
  auto to = RankedTensorType::get(type.getShape(), stored);
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense) return {};
  if (type.getElementType() == stored) return dense;
  unsigned width = stored.getIntOrFloatBitWidth();
  SmallVector<APInt> bits;
  auto integer = dyn_cast<IntegerType>(type.getElementType());
  auto fit = [&](const APInt &x) { return integer && !integer.isUnsigned() && integer.getWidth() > 1 ? x.sextOrTrunc(width) : x.zextOrTrunc(width); };
  if (isa<FloatType>(type.getElementType()))
    for (const APFloat &x : dense.getValues<APFloat>())
      bits.push_back(fit(x.bitcastToAPInt()));
  else
    for (const APInt &x : dense.getValues<APInt>())
      bits.push_back(fit(x));
  return DenseElementsAttr::get(to, bits);
}

void GraphLowering::check(const DimMath &d, Location loc, Dim condition, const std::string &text) {
  auto found = llvm::find(texts, text);
  int64_t number = found - texts.begin();
  if (found == texts.end()) texts.push_back(text);
  Value bad = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, condition.value, d.value(0));
  scf::IfOp::create(b, loc, bad, [&](OpBuilder &inner, Location) {
    Value id = arith::ConstantIntOp::create(inner, loc, number, 64);
    func::CallOp::create(inner, loc, "lathe_graph_fail", TypeRange{}, id);
    scf::YieldOp::create(inner, loc);
  });
}

std::optional<Dims> GraphLowering::elementsOf(Value value, const TensorValue &t) {
  if (auto known = elements.find(value); known != elements.end()) return known->second;
  if (auto constant = value.getDefiningOp<onnx::ConstantOp>()) {
    auto dense = dyn_cast<DenseIntElementsAttr>(constant.getValue());
    if (!dense) return std::nullopt;
    Dims list;
    for (const APInt &x : dense.getValues<APInt>())
      list.push_back(isUnsigned(t.element) || isBool(t.element) ? int64_t(x.getZExtValue()) : x.getSExtValue());
    return list;
  }
  if (t.rank() > 1 || (t.rank() == 1 && !t.shape[0].known) || !isInt(t.element)) return std::nullopt;
  int64_t n = t.rank() ? *t.shape[0].known : 1;
  if (n > int64_t(mostElements)) return std::nullopt;
  Dims list;
  for (int64_t i = 0; i < n; ++i) {
    SmallVector<Value> at;
    if (t.rank()) at.push_back(arith::ConstantIndexOp::create(b, value.getLoc(), i));
    Value x = tensor::ExtractOp::create(b, value.getLoc(), t.value, at);
    list.push_back(Dim(Value(arith::IndexCastOp::create(b, value.getLoc(), b.getIndexType(), x))));
  }
  return list;
}

/// Shape computations on the side: sizes stay numbers, or the values that they are, through the few operators that exporters use.
std::optional<Dims> GraphLowering::foldElements(onnx::NodeOp op, const NodeView &view) {
  auto inputs = op.getInputs();
  auto known = [&](unsigned i) -> std::optional<Dims> {
    if (i >= inputs.size()) return std::nullopt;
    if (auto it = elements.find(inputs[i]); it != elements.end()) return it->second;
    if (inputs[i].getDefiningOp<onnx::ConstantOp>()) return elementsOf(inputs[i], lookup(inputs[i]));
    return std::nullopt;
  };
  if (!view.domain.empty()) return std::nullopt;
  DimMath d(b, view.loc);
  TensorValue first = inputs.empty() ? TensorValue() : lookup(inputs[0]);
  if (view.op == "Shape") {
    onnx::AxisRange range = onnx::shapeRange(view.integer("start", 0), view.integer("end", first.rank()), first.rank());
    return Dims(first.shape.begin() + range.begin, first.shape.begin() + range.end);
  }
  if (view.op == "Size") return Dims{d.product(first.shape)};
  auto a = known(0);
  if (!a || a->size() > mostElements) return std::nullopt;
  // Sizes are computed in 64 bits: what another type would wrap, the tensor says.
  auto exact = [&](Dims list) -> std::optional<Dims> {
    auto type = cast<IntegerType>(first.element);
    for (Dim x : list) {
      if (type.isSignlessInteger(64)) break;
      if (!x.known || (type.isUnsigned() ? *x.known < 0 || (type.getWidth() < 64 && !llvm::isUIntN(type.getWidth(), *x.known)) : !llvm::isIntN(type.getWidth(), *x.known))) return std::nullopt;
    }
    return list;
  };
  if (view.op == "ConstantOfShape" && a->size() == 1 && (*a)[0].known && *(*a)[0].known >= 0 && *(*a)[0].known <= int64_t(mostElements)) {
    auto value = dyn_cast_if_present<DenseIntElementsAttr>(view.attributes.get("value"));
    if (!value || value.getNumElements() != 1) return std::nullopt;
    APInt x = *value.getValues<APInt>().begin();
    bool positive = isUnsigned(value.getElementType()) || isBool(value.getElementType());
    return Dims(size_t(*(*a)[0].known), Dim(positive ? int64_t(x.getZExtValue()) : x.getSExtValue()));
  }
  if (view.op == "Neg" && isInt(first.element)) {
    Dims out;
    for (Dim x : *a)
      out.push_back(d.sub(0, x));
    return exact(out);
  }
  if (view.op == "Identity" || view.op == "Reshape" || view.op == "Unsqueeze" || view.op == "Squeeze") return a;
  if (view.op == "Cast" && view.integer("to", 0) == 7) return a;
  if (view.op == "Concat" && first.rank() == 1) { // then all are lists, one after the other
    Dims all;
    for (unsigned i = 0; i < inputs.size(); ++i) {
      auto part = known(i);
      if (!part) return std::nullopt;
      all.append(part->begin(), part->end());
    }
    return all;
  }
  auto second = known(1);
  if (view.op == "Range" && second && isInt(first.element)) {
    auto delta = known(2);
    if (!delta || a->size() != 1 || second->size() != 1 || delta->size() != 1) return std::nullopt;
    if (!(*a)[0].known || !(*second)[0].known || !(*delta)[0].known || *(*delta)[0].known == 0) return std::nullopt;
    Dim count = d.ceilDiv(d.sub((*second)[0], (*a)[0]), (*delta)[0]); // as the type function counts
    if (*count.known > int64_t(mostElements)) return std::nullopt;
    Dims out;
    for (int64_t k = 0; k < *count.known; ++k)
      out.push_back(d.add((*a)[0], d.mul(k, (*delta)[0])));
    return exact(out);
  }
  if (view.op == "Gather" && second && first.rank() == 1) {
    Dims out;
    for (Dim i : *second) {
      if (!i.known) return std::nullopt;
      int64_t at = *i.known < 0 ? *i.known + int64_t(a->size()) : *i.known;
      if (at < 0 || at >= int64_t(a->size())) return std::nullopt;
      out.push_back((*a)[at]);
    }
    return out;
  }
  if (view.op == "Slice" && second && inputs.size() >= 3 && a->size() && first.rank() == 1) {
    auto ends = known(2), steps = known(4);
    if (second->size() != 1 || !ends || ends->size() != 1 || !(*second)[0].known || !(*ends)[0].known) return std::nullopt;
    if (inputs.size() > 4 && lookup(inputs[4]) && !(steps && steps->size() == 1 && (*steps)[0].is(1))) return std::nullopt;
    onnx::AxisRange range = onnx::rangeOf(*(*second)[0].known, *(*ends)[0].known, 1, int64_t(a->size()));
    return Dims(a->begin() + range.begin, a->begin() + range.begin + range.count);
  }
  // Element by element: lists, or one element against any number of them.
  bool lists = second && first.rank() <= 1 && lookup(inputs[1]).rank() <= 1 && a->size() == second->size();
  if (second && isInt(first.element) && (lists || a->size() == 1 || second->size() == 1)) {
    using Fn = Dim (DimMath::*)(Dim, Dim) const;
    Fn fn = view.op == "Add" ? &DimMath::add : view.op == "Sub" ? &DimMath::sub : view.op == "Mul" ? &DimMath::mul : nullptr;
    // Division rounds towards 0: the same for sizes that are known not to be negative.
    if (view.op == "Div") {
      for (const auto *list : {&*a, &*second})
        for (Dim x : *list)
          if (!x.known || *x.known < 0) return std::nullopt;
      fn = &DimMath::floorDiv;
    }
    if (!fn) return std::nullopt;
    Dims out;
    for (size_t i = 0, n = a->size() == 1 ? second->size() : a->size(); i < n; ++i) // no element where one has none
      out.push_back((d.*fn)((*a)[a->size() == 1 ? 0 : i], (*second)[second->size() == 1 ? 0 : i]));
    return exact(out);
  }
  return std::nullopt;
}

LogicalResult GraphLowering::conditional(onnx::NodeOp op, const NodeView &view) {
  if (op.getInputs().size() != 1 || op.getBodies().size() != 2) return view.error("one condition and two branches", Twine(op.getInputs().size()) + " inputs");
  TensorValue condition = lookup(op.getInputs()[0]);
  if (!condition || !isBool(condition.element)) return view.error("a condition of bool", condition ? elementText(condition.element) : "nothing");
  DimMath d(b, view.loc);
  TypeContext types(view, d, 0);
  Dim one = d.equal(d.product(condition.shape), 1);
  if (one.is(0)) return view.error("a condition of one element", typeText(condition.value.getType()));
  if (!one.known) check(d, view.loc, one, view.where() + ": expected a condition of one element");
  Lower l(b, types);
  Value bit = l.scalar(condition);
  // Both branches are built first, to find one type for both.
  auto made = scf::IfOp::create(b, view.loc, TypeRange{}, bit, true);
  SmallVector<SmallVector<TensorValue>> results(2);
  for (int side : {0, 1}) {
    OpBuilder::InsertionGuard guard(b);
    Block *to = side ? made.elseBlock() : made.thenBlock();
    b.setInsertionPointToStart(to);
    Block &from = op.getBodies()[side].front();
    if (failed(block(from))) return failure();
    for (Value v : from.getTerminator()->getOperands()) {
      TensorValue t = lookup(v);
      if (!t) return view.error("tensors as results of both branches", "another value");
      results[side].push_back(t);
    }
  }
  if (results[0].size() != results[1].size() || results[0].size() != op.getNumResults()) return view.error(Twine(op.getNumResults()) + " results of both branches", Twine(results[0].size()) + " and " + Twine(results[1].size()));
  SmallVector<Type> types2;
  for (auto [x, y] : llvm::zip(results[0], results[1])) {
    if (x.rank() != y.rank() || x.element != y.element) return view.error("branches with results of one rank and element type", typeText(x.value.getType()) + " and " + typeText(y.value.getType()));
    auto tx = cast<RankedTensorType>(x.value.getType()), ty = cast<RankedTensorType>(y.value.getType());
    SmallVector<int64_t> shape;
    for (auto [m, n] : llvm::zip(tx.getShape(), ty.getShape()))
      shape.push_back(m == n ? m : ShapedType::kDynamic);
    types2.push_back(RankedTensorType::get(shape, tx.getElementType()));
  }
  auto full = scf::IfOp::create(b, view.loc, types2, bit, true);
  for (int side : {0, 1}) {
    OpBuilder::InsertionGuard guard(b);
    Block *from = side ? made.elseBlock() : made.thenBlock(), *to = side ? full.elseBlock() : full.thenBlock();
    from->getTerminator()->erase();
    to->getOperations().splice(to->begin(), from->getOperations());
    if (!to->empty() && to->back().hasTrait<OpTrait::IsTerminator>()) to->back().erase();
    b.setInsertionPointToEnd(to);
    SmallVector<Value> yields;
    for (auto [x, t] : llvm::zip(results[side], types2))
      yields.push_back(x.value.getType() == t ? x.value : Value(tensor::CastOp::create(b, view.loc, t, x.value)));
    scf::YieldOp::create(b, view.loc, yields);
  }
  made.erase();
  for (auto [i, r] : llvm::enumerate(full.getResults()))
    map(op.getResult(i), {r, results[0][i].element, l.dims(r)});
  return success();
}

LogicalResult GraphLowering::node(onnx::NodeOp op) {
  NodeView view = viewOf(op);
  if (view.domain.empty() && view.op == "If") return conditional(op, view);
  LowerFn fn = lowerFunction(view.domain, view.op);
  if (!fn || !typeFunction(view.domain, view.op)) return view.error("an operator that general code covers (docs/onnx-operators.md)", "'" + (view.domain.empty() ? "" : view.domain + ".") + view.op + "'");
  DimMath d(b, view.loc);
  TypeContext types(view, d, op.getNumResults());
  Lower l(b, types);
  for (Value v : op.getInputs()) {
    TensorValue t = lookup(v);
    l.in.push_back(t);
    types.operands.push_back({t ? t.element : Type(), t.shape});
  }
  types.elements = [&](unsigned i) { return elementsOf(op.getInputs()[i], l.in[i]); };
  types.runtimeCheck = [&](Dim condition, const std::string &expected) {
    check(d, view.loc, condition, view.where() + ": expected " + expected);
  };
  if (failed(inferTypes(types)) || failed(fn(l))) return failure();
  if (l.out.size() < op.getNumResults()) return view.error("at most " + Twine(l.out.size()) + " results", Twine(op.getNumResults()));
  for (auto [result, t] : llvm::zip(op.getResults(), l.out))
    map(result, t);
  if (auto list = foldElements(op, view)) elements[op.getResult(0)] = *list;
  return success();
}

LogicalResult GraphLowering::block(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (isa<onnx::NoneOp>(op)) {
      values[op.getResult(0)] = TensorValue();
    } else if (auto constant = dyn_cast<onnx::ConstantOp>(op)) {
      auto type = dyn_cast<RankedTensorType>(constant.getResult().getType());
      DenseElementsAttr stored = type && !isa<onnx::StringType>(type.getElementType()) ? storedConstant(constant.getValue()) : DenseElementsAttr();
      if (!stored) return op.emitError() << "expected a constant of numbers, found " << constant.getResult().getType();
      Dims shape(type.getShape().begin(), type.getShape().end());
      map(constant.getResult(), {arith::ConstantOp::create(b, op.getLoc(), stored), type.getElementType(), shape});
    } else if (auto named = dyn_cast<onnx::NodeOp>(op)) {
      if (failed(node(named))) return failure();
    } else if (!isa<onnx::WeightOp>(op)) { // weights are arguments
      return op.emitError() << "expected ops of the onnx dialect";
    }
  }
  return success();
}

} // namespace lathe::ops
